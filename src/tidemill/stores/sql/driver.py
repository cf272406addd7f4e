"""The interface of a dialect's driver: named queries, transactions and wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

from tidemill.stores.base import Listener, Lock, SchemaStatus
from tidemill.stores.lock_server import LockServer
from tidemill.stores.server import BusStatus, ServerStatus

Row = tuple[Any, ...]
Takes = Mapping[str, object]
Items = Mapping[str, Sequence[object]]


class QueryCall(NamedTuple):
    """One named query with its parameters."""

    name: str
    takes: Takes
    items: Items | None = None
    flags: tuple[str, ...] = ()


class Turn(NamedTuple):
    """Queries of a transaction that are sent together; with ``last``, the commit is sent with them."""

    calls: Sequence[QueryCall]
    last: bool = False


T = TypeVar("T")
Turns = Generator[Turn, list[list[Row]], T]
"""A transaction that decides what to send next from the rows of the previous turn."""


class QueryPipeline(Protocol):
    """A channel on which one thread sends queries before the last one is answered; as ``stores.step_pipeline``, for any query."""

    def send(self, call: QueryCall) -> bool: ...

    @property
    def file(self) -> int: ...

    def answered(self) -> bool: ...

    def receive(self) -> list[Row]: ...


class Driver(Protocol):
    """One dialect, one database.

    The first call of ``run`` opens the database and checks its schema, so that a store can be created before its database
    is up. Errors are already translated.
    """

    url: str

    @property
    def cooperative(self) -> bool:
        """Whether it waits as described in ``stores.wait_function``."""
        ...

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        """Run a named query in its own transaction, or in the one that this thread has open. Returns its rows.

        ``takes`` are single values by name; one that is missing or None is NULL and leaves out the lines that need it.
        ``items`` are the columns of a batch. ``flags`` switch further optional lines on.
        """
        ...

    def run_together(self, calls: Sequence[QueryCall]) -> list[list[Row]]:
        """Run several independent named queries in one transaction, if they write. Returns the rows of each."""
        ...

    def run_turns(self, begin: Callable[[], Turns[T]]) -> T:
        """Run turns of named queries in one transaction, or in the one that this thread has open.

        ``begin`` is called again if another transaction was in the way and nothing was changed.
        """
        ...

    def run_each(
        self, name: str, takes: Takes, batches: Iterable[Items], keep: Callable[[list[list[Row]]], bool]
    ) -> list[list[Row]] | None:
        """Run a named query for every batch, in one transaction that commits if ``keep`` returns true for the rows of all.

        A batch may be created while the server executes the previous one. None, without a query, if this is not possible.
        """
        ...

    def ahead(self) -> QueryPipeline | None:
        """A channel to send queries ahead, each in its own transaction; None if this is not possible."""
        ...

    def transaction(self) -> AbstractContextManager[None]: ...

    def schema(self) -> SchemaStatus: ...

    def migrate(self) -> list[str]: ...

    def check(self) -> None: ...

    def notify(self, topics: Iterable[str]) -> None: ...

    def listen(self) -> Listener: ...

    def hold(self, name: str) -> Lock | None: ...

    def server(self) -> ServerStatus | None:
        """The state of the server; None without one."""
        ...

    def locks(self) -> LockServer | None:
        """The lock server of this store."""
        ...

    def bus(self) -> BusStatus | None:
        """The server that carries the wake-ups; None if the database does."""
        ...

    def notify_later(self, topics: Iterable[str]) -> None:
        """Wake listeners a moment later, for a transaction whose commit this store does not see."""
        ...

    def rest(self) -> None:
        """Close idle connections that were hardly used since the last call; one stays open."""
        ...

    def scrub(self) -> None:
        """Overwrite deleted rows in the files of the database, as far as possible."""
        ...

    def close(self) -> None: ...


def run_one_by_one(run: Callable[[QueryCall], list[Row]], turns: Turns[T]) -> T:
    """Run the queries of a transaction one by one, in a transaction that the caller has opened."""
    try:
        turn = next(turns)
        while True:
            turn = turns.send([run(call) for call in turn.calls])
    except StopIteration as end:
        value: T = end.value
        return value
