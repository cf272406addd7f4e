"""All shards of an app behind the interface of one store: each call goes to the shard of its tenant.

A question about all tenants goes to every shard at the same time, and the answers become one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, cast

from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import CrossShard, JobNotFound, StoreError, UsageError
from tidemill.shards.absence import note_missing
from tidemill.shards.fan_out import FanOut
from tidemill.shards.listener import MergedListener
from tidemill.shards.map import ShardMap
from tidemill.shards.routes import VERBS, Options, RouteScope, VerbRoute
from tidemill.stores.base import Listener, Store
from tidemill.stores.lock_server import LockServer
from tidemill.stores.server import BusStatus

StoreNamed = Callable[[str], Store]


class _Transaction:
    """An open transaction of one thread, and the shard that it belongs to once a verb has chosen one."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.shard: str | None = None


class ShardedStore:
    """Routes the verbs of ``VERBS``; every other verb belongs to a worker, which serves one shard.

    ``find`` returns the store of a shard; ``map`` knows the shards of tenants.
    """

    def __init__(self, map: ShardMap, find: StoreNamed, fan_out: FanOut) -> None:  # noqa: A002  (what it is)
        self._map, self._find, self._fan_out = map, find, fan_out
        self._local = threading.local()

    def as_store(self) -> Store:
        """Return this object as a store, for code that calls only the verbs of ``VERBS``."""
        return cast("Store", self)

    @property
    def url(self) -> str:
        """The addresses of the shards, without passwords."""
        return ", ".join(self._find(name).url for name in self._distinct(self._map.names))

    @property
    def cooperative(self) -> bool:
        return False

    @property
    def subscriptions(self) -> Sequence[Any]:
        """The subscriptions of the home store."""
        return self._find(self._map.home).subscriptions

    @property
    def blob_url(self) -> str | None:
        """The place of large values, which is that of the app."""
        return self._find(self._map.home).blob_url

    def __getattr__(self, name: str) -> Any:
        route = VERBS.get(name)
        if route is not None:
            return partial(self._call, name, route)
        if name in Store.__abstractmethods__:
            raise UsageError(f"the verb {name} belongs to one shard; use app.at_store(name)")
        raise AttributeError(name)

    # Calls -------------------------------------------------------------------------------------------------------------

    def _call(self, verb: str, route: VerbRoute, /, *args: Any, **options: Any) -> Any:
        if route.scope is RouteScope.ROWS:
            return self._by_rows(verb, route, args, options)
        return self._ask(verb, route, self._names(route, args, options), args, options)

    def _names(self, route: VerbRoute, args: Sequence[Any], options: Options) -> tuple[str, ...]:
        """Return the shards of a call, the current one of its tenant first."""
        match route.scope:
            case RouteScope.HOME:
                return (self._map.home,)
            case RouteScope.TENANT:
                tenant = options.get("tenant", ALL_TENANTS)
            case RouteScope.FILTER | RouteScope.ROW:
                tenant = args[0].tenant
            case RouteScope.GROUPS:
                tenant = args[0][0].tenant
            case _:
                tenant = ALL_TENANTS
        return self._of(tenant, route)

    def _of(self, tenant: str | None, route: VerbRoute) -> tuple[str, ...]:
        """Return the shards that may have rows of a tenant, or the one that gets its new rows."""
        if route.creates:
            # Rows about no tenant, such as audit entries about settings, belong to the home store.
            return (self._map.shard_of(tenant or ALL_TENANTS),)
        if tenant is None or tenant == ALL_TENANTS:
            return self._distinct(self._map.names)
        return self._distinct(self._map.find(tenant).shards)

    def _distinct(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return these shards without those that are the same store as an earlier one, as in tests."""
        first_names: dict[int, str] = {}
        for name in names:
            first_names.setdefault(id(self._find(name)), name)
        return tuple(first_names.values())

    def _by_rows(self, verb: str, route: VerbRoute, args: Sequence[Any], options: Options) -> Any:
        """Divide rows by the shards of their tenants, and put the answers together."""
        rows = list(args[0])
        groups: dict[tuple[str, ...], list[int]] = {}
        for number, row in enumerate(rows):
            names = self._in_transaction(row.tenant, route) or self._of(row.tenant, route)
            groups.setdefault(names, []).append(number)
        if len(groups) <= 1:
            names = next(iter(groups), (self._map.home,))
            return self._ask(verb, route, names, (rows, *args[1:]), options)
        answers: list[Any] = []
        placed: dict[int, Any] = {}
        for names, numbers in groups.items():
            answer = self._ask(verb, route, names, ([rows[n] for n in numbers], *args[1:]), options)
            answers.append(answer)
            if isinstance(answer, list):
                placed |= dict(zip(numbers, answer, strict=True))
        if placed:
            return [placed[number] for number in range(len(rows))]
        return route.merge(answers, options)

    def _in_transaction(self, tenant: str | None, route: VerbRoute) -> tuple[str, ...]:
        """Return the shard of the open transaction, for rows about no tenant that are written in it."""
        open_one: _Transaction | None = getattr(self._local, "transaction", None)
        if open_one is None or open_one.shard is None or tenant not in (None, ALL_TENANTS):
            return ()
        return (open_one.shard,) if route.creates else ()

    def _ask(
        self, verb: str, route: VerbRoute, names: tuple[str, ...], args: Sequence[Any], options: Options
    ) -> Any:
        here = self._enter(names, route)
        if route.writes:
            return self._write(verb, route, names, args, options)
        questions = {name: self._question(name, verb, args, options) for name in names}
        answers, missing = self._fan_out.ask(questions, here=here)
        note_missing(missing)
        return answers[0] if len(names) == 1 else route.merge(answers, options)

    def _question(self, name: str, verb: str, args: Sequence[Any], options: Options) -> Callable[[], Any]:
        return partial(getattr(self._find(name), verb), *args, **options)

    def _write(
        self, verb: str, route: VerbRoute, names: tuple[str, ...], args: Sequence[Any], options: Options
    ) -> Any:
        """Write in each of these shards, one after the other; none may be left out."""
        self._local.written = names
        answers: list[Any] = []
        absent: JobNotFound | None = None
        for name in names:
            try:
                answers.append(self._question(name, verb, args, options)())
            except JobNotFound as error:
                if not route.owned:
                    raise
                absent = error
            else:
                if route.owned:
                    break
        if absent is not None and not answers:
            raise absent
        return answers[0] if len(answers) == 1 else route.merge(answers, options)

    # Transactions and wake-ups -----------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction of the shard that the first verb inside goes to. A write to another shard is refused."""
        if getattr(self._local, "transaction", None) is not None:
            yield
            return
        with ExitStack() as stack:
            self._local.transaction = _Transaction(stack)
            try:
                yield
            finally:
                self._local.transaction = None

    def _enter(self, names: tuple[str, ...], route: VerbRoute) -> str | None:
        """Begin the open transaction in the first of these shards; return its shard if the call goes there."""
        open_one: _Transaction | None = getattr(self._local, "transaction", None)
        if open_one is None:
            return None
        belongs = route.writes or (len(names) == 1 and route.scope not in (RouteScope.HOME, RouteScope.ALL))
        if open_one.shard is None and belongs:
            open_one.stack.enter_context(self._find(names[0]).transaction())
            open_one.shard = names[0]
        if open_one.shard in names:
            return open_one.shard
        if route.writes:
            raise CrossShard(
                f"this transaction belongs to the shard {open_one.shard!r}, and the call goes to {names[0]!r};"
                " use a transaction for each tenant",
                shard=names[0],
            )
        return None

    def notify(self, topics: Iterable[str]) -> None:
        """Wake the listeners of the shards that this thread has just written to, or of all shards."""
        names: tuple[str, ...] = getattr(self._local, "written", ()) or self._distinct(self._map.names)
        self._local.written = ()
        wanted = list(topics)
        with suppress(StoreError):  # wake-ups are hints
            self._fan_out.ask({name: partial(self._find(name).notify, wanted) for name in names})

    def listen(self) -> Listener:
        """A listener for wake-ups of all shards."""
        return MergedListener([self._find(name) for name in self._distinct(self._map.names)])

    def locks(self) -> LockServer | None:
        """The lock server of the home store; ``app.at_store(name)`` reaches that of another shard."""
        return self._find(self._map.home).locks()

    def bus(self) -> BusStatus | None:
        """The wake-up bus of the home store."""
        return self._find(self._map.home).bus()

    def rest(self) -> None:
        """Do nothing: the worker of a shard releases its connections."""

    def close(self) -> None:
        """Do nothing: the client closes the shards."""
