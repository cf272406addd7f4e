"""``app.jobs``: queries and bulk actions on jobs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from uuid import UUID

from tidemill.client.access import NAMED, note, plain
from tidemill.client.core import Client
from tidemill.client.enqueue.options import id_of, read_reference
from tidemill.client.jobs.actions import BATCH, cancel_batch, change_batch, check_change
from tidemill.client.jobs.handle import Job
from tidemill.client.jobs.lookup import definition_id_of, schedule_id_of
from tidemill.client.jobs.why import Reason
from tidemill.domain.bounds import check_text
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.job import CHANGEABLE
from tidemill.domain.job import JobRow as Facts
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter, JobNotFound
from tidemill.tasks.ambient import current_tenant

TOGETHER = 5_000
"""Maximum number of jobs that a bulk action changes and audits in one transaction."""

Batch = Sequence[Facts]
Where = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Acted:
    """Result of a bulk action: the number of changed jobs, and of jobs whose state did not allow it."""

    done: int
    skipped: int


class Jobs:
    """The jobs of an app.

    Each method uses the current tenant unless it is called with another tenant, or with ``"*"`` for all tenants.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Job[Any]:
        """Return the job with that id, or raise ``JobNotFound``. An archived job has ``archived_at`` set."""
        wanted = id_of(id)
        if wanted is None:
            raise JobNotFound("None is not a job's id")
        return Job(self._client, self._client.get(wanted, tenant=self._tenant(tenant), store=store), store)

    async def aget(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Job[Any]:
        found: Job[Any] = await self._client.in_thread(lambda: self.get(id, tenant=tenant, store=store))
        return found

    def why(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Sequence[Reason]:
        """Return why the job is not running, or how it ended; the most important reason first."""
        return self.get(id, tenant=tenant, store=store).why()

    async def awhy(
        self, id: UUID | str, *, tenant: str | None = None, store: str | None = None
    ) -> Sequence[Reason]:
        found: Sequence[Reason] = await self._client.in_thread(
            lambda: self.why(id, tenant=tenant, store=store)
        )
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
        """Return one page of the jobs that match; ``page.next`` is the cursor of the next page.

        With ``text``, a page may hold fewer than ``limit`` jobs, or none, and still have a next page.
        """
        wanted, order, target = self._filter(where, store), _sort(sort), self._client.store(store)
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
        """Yield every job that matches, reading in batches."""
        cursor: str | None = None
        while True:
            page = self.list(limit=batch, cursor=cursor, sort=sort, store=store, **where)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def count(self, *, store: str | None = None, **where: Any) -> int:
        """Count the jobs that match."""
        return sum(self.counts(store=store, **where).values())

    async def acount(self, **where: Any) -> int:
        found: int = await self._client.in_thread(lambda: self.count(**where))
        return found

    def counts(
        self, *, most: int | None = None, store: str | None = None, **where: Any
    ) -> dict[JobState, int]:
        """Count the matching jobs by status, up to ``most`` in total. A ``text`` condition reads every candidate."""
        if where.get("text"):
            rows = self.stream(batch=1000, store=store, **where)
            return dict(Counter(row.status for row in (rows if most is None else islice(rows, most))))
        wanted, target = self._filter(where, store), self._client.store(store)
        return {} if _is_empty(where.get("ids")) else target.count(wanted, most=most)

    # Bulk actions ----------------------------------------------------------------------------------------------------
    #
    # ``asked`` is the filter that the audit records, for callers that look up the ids themselves.

    def cancel(
        self, *, reason: str | None = None, store: str | None = None, asked: Where | None = None, **where: Any
    ) -> Acted:
        """Cancel every job that matches; workers are asked to stop the jobs they hold.

        Cancelling starts with the newest job, because workers start with the oldest.
        """
        check_text("reason", reason)
        said = reason or "cancelled"
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return cancel_batch(target, batch, said)

        states = expected(Action.CANCEL) | HELD
        # Jobs enqueued from now on are newer than the first row read, so the rows can be streamed instead of read up
        # front.
        rows = self._found(where, store, states, sort="newest")
        return self._each("cancelled", rows, where, store, act, asked, reason=said)

    def retry(self, *, store: str | None = None, asked: Where | None = None, **where: Any) -> Acted:
        """Give every ended job that matches another chain of attempts."""
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return target.move([move(facts, Action.RETRY, "retried manually") for facts in batch])

        rows = list(self._found(where, store, expected(Action.RETRY)))
        return self._each("retried", rows, where, store, act, asked)

    def delete(self, *, store: str | None = None, asked: Where | None = None, **where: Any) -> Acted:
        """Delete every ended job that matches, with its executions and logs."""
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return target.delete([facts.id for facts in batch], tenant=self._tenant(where.get("tenant")))

        rows = list(self._found(where, store, ENDED))
        return self._each("deleted", rows, where, store, act, asked)

    def change(
        self,
        *,
        priority: int | None = None,
        to_queue: str | None = None,
        store: str | None = None,
        asked: Where | None = None,
        **where: Any,
    ) -> Acted:
        """Change the priority, the queue or both, of every matching job that waits to run (pending or scheduled).

        ``queue`` is a condition, as in the other methods; ``to_queue`` is the new queue.
        """
        check_change(to_queue, priority)
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return change_batch(target, batch, to_queue, priority)

        to = {
            name: value for name, value in (("queue", to_queue), ("priority", priority)) if value is not None
        }
        rows = list(self._found(where, store, CHANGEABLE))
        return self._each("changed", rows, where, store, act, asked, to=to)

    async def achange(self, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.change(**where))
        return found

    async def acancel(self, *, reason: str | None = None, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.cancel(reason=reason, **where))
        return found

    async def aretry(self, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.retry(**where))
        return found

    async def adelete(self, **where: Any) -> Acted:
        found: Acted = await self._client.in_thread(lambda: self.delete(**where))
        return found

    def _found(
        self, where: Where, store: str | None, states: frozenset[JobState], sort: str = "oldest"
    ) -> Iterator[Facts]:
        """Yield the jobs that a bulk action applies to, in one of these states, without their arguments and results."""
        wanted = self._filter(where, store)
        if any(_is_empty(where.get(name)) for name in ("ids", "status", "task", "queue")):
            return iter(())  # an empty list matches no job, not every job
        if not wanted.narrows:
            raise BadFilter("a bulk action needs a condition in addition to the tenant; specify the jobs")
        narrowed = (wanted.states & states) if wanted.states else states
        if not narrowed:
            return iter(())
        rows = self.stream(batch=1000, sort=sort, store=store, **{**where, "status": narrowed})
        return (replace(row.facts, args="", result=None) for row in rows)

    def _each(
        self,
        verb: str,
        rows: Iterable[Facts],
        where: Where,
        store: str | None,
        act: Callable[[Batch], Collection[UUID]],
        asked: Where | None,
        **more: object,
    ) -> Acted:
        """Apply the action batch by batch; jobs that changed state since they were read are skipped."""
        target, tenant = self._client.store(store), self._tenant(where.get("tenant"))
        done = seen = 0
        left = iter(rows)
        while part := list(islice(left, TOGETHER)):
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
                    note(target, act_name, "jobs", tenant, before=before, after=after, now=pin)
            self._publish(verb, told)
            done, seen = done + len(changed), seen + len(part)
        if seen:
            target.notify(["ended", "cancel", "change"])
        return Acted(done, seen - done)

    def _publish(self, verb: str, jobs: Sequence[Facts]) -> None:
        """Publish the action for each job, with the state that it led to."""
        states = {"cancelled": JobState.CANCELLED, "retried": JobState.PENDING}
        held = [facts for facts in jobs if facts.state in HELD]
        free = [
            replace(facts, state=states.get(verb, facts.state)) for facts in jobs if facts.state not in HELD
        ]
        self._client.publish_acts(f"job.{verb}", free)
        self._client.publish_acts("job.cancel_requested", held)

    # Conditions ------------------------------------------------------------------------------------------------------

    def _tenant(self, given: str | None) -> str:
        return given or current_tenant() or self._client.tenant

    def _filter(self, where: Mapping[str, Any], store: str | None = None) -> JobFilter:
        known = {
            "status", "task", "queue", "tenant", "correlation_id", "parent_id", "reference", "tag", "metadata",
            "created_after", "created_before", "ids", "text", "text_in_args", "definition", "definition_version",
            "schedule", "fire_at",
        }  # fmt: skip
        unknown = sorted(set(where) - known)
        if unknown:
            raise BadFilter(f"there is no condition {unknown[0]!r}; there are {', '.join(sorted(known))}")
        tenant, target = self._tenant(where.get("tenant")), self._client.store(store)
        return JobFilter(
            tenant=tenant,
            states=frozenset(_state(name) for name in _several(where.get("status"))),
            tasks=frozenset(getattr(task, "name", task) for task in _several(where.get("task"))),
            queues=frozenset(_several(where.get("queue"))),
            ids=frozenset(found for id in _several(where.get("ids")) if (found := id_of(id)) is not None),
            correlation_id=where.get("correlation_id"),
            parent_id=id_of(where.get("parent_id")),
            definition_id=definition_id_of(target, where.get("definition"), tenant),
            definition_version=where.get("definition_version"),
            schedule_id=schedule_id_of(target, where.get("schedule"), tenant),
            fire_at=_instant(where.get("fire_at")),
            reference=None if where.get("reference") is None else read_reference(where["reference"]),
            tag=where.get("tag"),
            metadata={key: _value(value) for key, value in (where.get("metadata") or {}).items()},
            created_after=_instant(where.get("created_after")),
            created_before=_instant(where.get("created_before")),
            text=where.get("text"),
            text_in_args=where.get("text_in_args", True),
        )


def _value(given: object) -> str:
    """Return a metadata value in the form in which stores compare it.

    That is a text, or the JSON form of a number, a bool or None. Databases format lists and dictionaries differently,
    so a comparison with them would never match.
    """
    if given is not None and not isinstance(given, str | bool | int | float):
        raise BadFilter(
            f"metadata: {given!r} cannot be searched for; give a text, a number, a boolean or None"
        )
    return given if isinstance(given, str) else json.dumps(given)


def _asked_before(facts: Facts) -> bool:
    """Whether cancellation of a held job was requested before; a second request changes nothing."""
    return facts.state in HELD and facts.cancel_reason is not None


def _words(where: Where) -> dict[str, object]:
    """Return a filter for the audit, with the number of ids in place of the ids."""
    said = {name: plain(value) for name, value in where.items() if name != "ids"}
    if "ids" in where:
        said["ids"] = len(list(_several(where["ids"])))
    return said


def _is_empty(given: Any) -> bool:
    """Whether a condition is an empty list, which no job can match."""
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
