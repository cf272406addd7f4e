"""``app.jobs``: finding jobs, and doing one thing to many of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from tidemill.client.acting import NAMED, note, plain
from tidemill.client.core import Client
from tidemill.client.handle import Job
from tidemill.client.options import id_of, read_reference
from tidemill.domain.bounds import check_text
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Page, Sort
from tidemill.domain.job import Job as Facts
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter, JobNotFound
from tidemill.tasks.ambient import current_tenant

BATCH = 500

TOGETHER = 5_000
"""Jobs of a bulk action that are done, and written down, in one transaction."""

Batch = Sequence[Facts]
Where = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Acted:
    """What a bulk action did: jobs it was done to, and jobs that had moved on or do not allow it."""

    done: int
    skipped: int


class Jobs:
    """The jobs of an app. The tenant is the surrounding one unless another, or ``"*"`` for all, is given."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Job[Any]:
        """The job of that id, or ``JobNotFound``."""
        wanted = id_of(id)
        if wanted is None:
            raise JobNotFound("None is not a job's id")
        return Job(self._client, self._client.get(wanted, tenant=self._tenant(tenant), store=store), store)

    async def aget(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Job[Any]:
        found: Job[Any] = await self._client.in_thread(lambda: self.get(id, tenant=tenant, store=store))
        return found

    def list(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        sort: str = "newest",
        store: str | None = None,
        **where: Any,
    ) -> Page[Job[Any]]:
        """One page of the jobs that match; ``page.next`` is the cursor of the next one. With ``text`` a page may hold fewer than
        ``limit``, or none, and still have a next one.
        """
        wanted, order, target = self._filter(where), _sort(sort), self._client.store(store)
        if _is_empty(where.get("ids")):
            return Page([])
        page = target.jobs(wanted, sort=order, limit=limit, after=cursor)
        return Page([Job(self._client, facts, store) for facts in page.items], page.next)

    async def alist(self, **where: Any) -> Page[Job[Any]]:
        found: Page[Job[Any]] = await self._client.in_thread(lambda: self.list(**where))
        return found

    def stream(
        self, *, batch: int = 100, sort: str = "oldest", store: str | None = None, **where: Any
    ) -> Iterator[Job[Any]]:
        """Every job that matches, read in batches."""
        cursor: str | None = None
        while True:
            page = self.list(limit=batch, cursor=cursor, sort=sort, store=store, **where)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def count(self, *, store: str | None = None, **where: Any) -> int:
        """How many jobs match."""
        return sum(self.counts(store=store, **where).values())

    async def acount(self, **where: Any) -> int:
        found: int = await self._client.in_thread(lambda: self.count(**where))
        return found

    def counts(
        self, *, most: int | None = None, store: str | None = None, **where: Any
    ) -> dict[JobState, int]:
        """How many jobs match, by status; no more than ``most`` are counted. For a text each of them is looked at."""
        if where.get("text"):
            rows = self.stream(batch=1000, store=store, **where)
            return dict(Counter(row.status for row in (rows if most is None else islice(rows, most))))
        wanted, target = self._filter(where), self._client.store(store)
        return {} if _is_empty(where.get("ids")) else target.count(wanted, most=most)

    # Many at once ----------------------------------------------------------------------------------------------------
    #
    # ``asked`` is the filter that the audit is to name, for those who look the ids up themselves.

    def cancel(
        self, *, reason: str | None = None, store: str | None = None, asked: Where | None = None, **where: Any
    ) -> Acted:
        """Cancel every job that matches: those nobody holds end, the others are asked to stop."""
        check_text("reason", reason)
        said = reason or "cancelled"
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            free = [facts for facts in batch if facts.state in expected(Action.CANCEL)]
            changed = target.move([move(facts, Action.CANCEL, said) for facts in free])
            held = [facts.id for facts in batch if facts.state in HELD]
            return changed | target.request_cancel(held, tenant=ALL_TENANTS, reason=said)

        states = expected(Action.CANCEL) | HELD
        return self._each("cancelled", where, store, states, act, asked, reason=said)

    def retry(self, *, store: str | None = None, asked: Where | None = None, **where: Any) -> Acted:
        """Give every ended job that matches another chain of attempts."""
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return target.move([move(facts, Action.RETRY, "retried by hand") for facts in batch])

        return self._each("retried", where, store, expected(Action.RETRY), act, asked)

    def delete(self, *, store: str | None = None, asked: Where | None = None, **where: Any) -> Acted:
        """Remove every ended job that matches, with all that was written about it."""
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return target.delete([facts.id for facts in batch], tenant=self._tenant(where.get("tenant")))

        return self._each("deleted", where, store, ENDED, act, asked)

    async def acancel(self, *, reason: str | None = None, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.cancel(reason=reason, **where))
        return found

    async def aretry(self, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.retry(**where))
        return found

    async def adelete(self, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.delete(**where))
        return found

    def _each(
        self,
        verb: str,
        where: Where,
        store: str | None,
        states: frozenset[JobState],
        act: Callable[[Batch], Collection[UUID]],
        asked: Where | None,
        **more: object,
    ) -> Acted:
        """Do it to what matched when we began, batch by batch; what has moved on meanwhile is skipped."""
        wanted = self._filter(where)
        if any(_is_empty(where.get(name)) for name in ("ids", "status", "task", "queue")):
            return Acted(0, 0)  # one of none: that is no job, and not every job
        if not wanted.narrows:
            raise BadFilter("a bulk action needs a condition beside the tenant; say which jobs are meant")
        narrowed = (wanted.states & states) if wanted.states else states
        if not narrowed:
            return Acted(0, 0)
        rows = [row.facts for row in self.stream(batch=1000, store=store, **{**where, "status": narrowed})]
        target = self._client.store(store)
        done = 0
        for start in range(0, len(rows), TOGETHER):
            part = rows[start : start + TOGETHER]
            with target.transaction():
                changed: set[UUID] = set()
                for at in range(0, len(part), BATCH):
                    changed.update(act(part[at : at + BATCH]))
                told = [facts for facts in part if facts.id in changed and not _asked_before(facts)]
                if told:
                    before = {"status": dict(Counter(facts.state.value for facts in told))}
                    after = {
                        "filter": _words(asked or where),
                        "done": len(changed),
                        "skipped": len(part) - len(changed),
                        "ids": [str(facts.id) for facts in told[:NAMED]],
                        **more,
                    }
                    act_name, pin = f"jobs.{verb}", self._client.pin
                    note(target, act_name, "jobs", wanted.tenant, before=before, after=after, now=pin)
            done += len(changed)
        target.notify(["ended", "cancel", "change"])
        return Acted(done, len(rows) - done)

    # Conditions ------------------------------------------------------------------------------------------------------

    def _tenant(self, given: str | None) -> str:
        return given or current_tenant() or self._client.tenant

    def _filter(self, where: Mapping[str, Any]) -> JobFilter:
        known = {
            "status", "task", "queue", "tenant", "correlation_id", "parent_id", "reference", "tag", "metadata",
            "created_after", "created_before", "ids", "text", "text_in_args",
        }  # fmt: skip
        unknown = sorted(set(where) - known)
        if unknown:
            raise BadFilter(f"there is no condition {unknown[0]!r}; there are {', '.join(sorted(known))}")
        return JobFilter(
            tenant=self._tenant(where.get("tenant")),
            states=frozenset(_state(name) for name in _several(where.get("status"))),
            tasks=frozenset(getattr(task, "name", task) for task in _several(where.get("task"))),
            queues=frozenset(_several(where.get("queue"))),
            ids=frozenset(found for id in _several(where.get("ids")) if (found := id_of(id)) is not None),
            correlation_id=where.get("correlation_id"),
            parent_id=id_of(where.get("parent_id")),
            reference=None if where.get("reference") is None else read_reference(where["reference"]),
            tag=where.get("tag"),
            metadata={key: _value(value) for key, value in (where.get("metadata") or {}).items()},
            created_after=_instant(where.get("created_after")),
            created_before=_instant(where.get("created_before")),
            text=where.get("text"),
            text_in_args=where.get("text_in_args", True),
        )


def _value(given: object) -> str:
    """A value of metadata as it is compared: a text, or what JSON writes for a number, a truth or none.

    Lists and dictionaries are spelt differently by every database, so that nothing would be found.
    """
    if given is not None and not isinstance(given, str | bool | int | float):
        raise BadFilter(f"metadata: {given!r} cannot be looked for; give a text, a number, a truth or None")
    return given if isinstance(given, str) else json.dumps(given)


def _asked_before(facts: Facts) -> bool:
    """Whether somebody has asked its worker already; to ask again changes nothing."""
    return facts.state in HELD and facts.cancel_reason is not None


def _words(where: Where) -> dict[str, object]:
    """A filter for the audit; of many ids only how many they are."""
    said = {name: plain(value) for name, value in where.items() if name != "ids"}
    if "ids" in where:
        said["ids"] = len(list(_several(where["ids"])))
    return said


def _is_empty(given: Any) -> bool:
    """Whether a condition was given that nothing can meet: a list of which there is nothing to be one of."""
    return isinstance(given, list | tuple | set | frozenset) and not given


def _several(given: Any) -> Iterable[Any]:
    if given is None:
        return ()
    return given if isinstance(given, list | tuple | set | frozenset) else (given,)


def _state(name: Any) -> JobState:
    try:
        return JobState(name)
    except ValueError:
        raise BadFilter(
            f"there is no status {name!r}; there are {', '.join(JobState)}", status=name
        ) from None


def _sort(name: str) -> Sort:
    try:
        return Sort(name)
    except ValueError:
        raise BadFilter(f"sort is {name!r}; choose newest or oldest") from None


def _instant(value: Any) -> datetime | None:
    if value is not None and not isinstance(value, datetime):
        raise BadFilter(f"{value!r} is not a datetime")
    return value
