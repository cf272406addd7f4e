"""``app.jobs``: queries and bulk actions on jobs."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, Concatenate, NamedTuple, ParamSpec
from uuid import UUID

from tidemill.archive.tiers import merged_jobs, read_tiers
from tidemill.client._base import async_twin
from tidemill.client.access import NAMED, note, plain, who
from tidemill.client.core import Client
from tidemill.client.enqueue.options import id_of
from tidemill.client.jobs.actions import (
    BATCH,
    cancel_batch,
    change_batch,
    check_change,
    delay_until,
    put_off,
    spread_over,
)
from tidemill.client.jobs.conditions import SCANNING, instant, job_filter, several
from tidemill.client.jobs.handle import Job
from tidemill.client.jobs.why import Reason
from tidemill.domain.bounds import check_text
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.filters import ALL_TENANTS, LOOK, JobFilter, Page, Sort, encode_cursor
from tidemill.domain.job import CHANGEABLE, JobRow, levels_from
from tidemill.domain.log_search import FoundLine, LogFilter
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter, BadSettings, JobNotFound
from tidemill.shards.absence import says_missing
from tidemill.stores.base import Store
from tidemill.tasks.ambient import current_tenant

P = ParamSpec("P")

SHOWN = 12
"""Digits of the short form: the last ones, because ids created together share their first digits."""

LEAST = 6
LEAST_SUFFIX = 8
"""Minimum digits of a suffix in a store with too many jobs to search all of them."""

CANDIDATES = 10
ACTIVE = frozenset(JobState) - ENDED


def short(id: UUID) -> str:
    """Return the short form of an id.

    >>> short(UUID("01890a5d-ac96-774b-bcce-b302099a8057"))
    'b302099a8057'
    """
    return id.hex[-SHOWN:]


def resolve(store: Store, text: str, *, tenant: str) -> UUID:
    """Return the id of the only job whose id equals, starts with or ends with these digits.

    A prefix is a range of the primary key. A suffix is searched among the newest ``LOOK`` jobs, and among the newest
    ``LOOK`` that have not ended; older jobs need a prefix.
    """
    digits = text.strip().lower().replace("-", "")
    if not digits or digits.strip("0123456789abcdef") or len(digits) > 32:
        raise BadSettings(f"{text!r} is not a job id; give hexadecimal digits, such as 01a1e672", id=text)
    if len(digits) == 32:
        return UUID(digits)
    if len(digits) < LEAST:
        raise BadSettings(f"{text!r} is too short for a job id; give at least {LEAST} characters", id=text)
    matches = {job.id: job for job in _with_prefix(store, digits, tenant)}
    prefixed = len(matches)
    ending, everything = _with_suffix(store, digits, tenant)
    matches |= {job.id: job for job in ending}
    if not matches:
        raise JobNotFound(_nothing(text, everything=everything), id=text)
    if len(matches) > 1:
        raise BadSettings(_ambiguous(text, list(matches.values())), id=text)
    if not prefixed and not everything and len(digits) < LEAST_SUFFIX:
        raise BadSettings(
            f"{text!r} may be the end of several ids, as the store has more than {LOOK:,} jobs; "
            f"give at least {LEAST_SUFFIX} characters",
            id=text,
        )
    return next(iter(matches))


def _with_prefix(store: Store, digits: str, tenant: str) -> list[JobRow]:
    """Return the oldest jobs whose id starts with these digits, one more than are listed."""
    low, high = int(digits.ljust(32, "0"), 16), int(digits.ljust(32, "f"), 16)
    after = encode_cursor(Sort.OLDEST, UUID(int=low - 1)) if low else None
    page = store.jobs(JobFilter(tenant), sort=Sort.OLDEST, limit=CANDIDATES + 1, after=after)
    return [job for job in takewhile(lambda job: job.id.int <= high, page.items) if job.id.int >= low]


def _with_suffix(store: Store, digits: str, tenant: str) -> tuple[list[JobRow], bool]:
    """Return the jobs whose id ends with these digits, and whether every job of the store was searched."""
    page = store.jobs(JobFilter(tenant, id_suffix=digits), limit=CANDIDATES + 1)
    jobs, everything = page.items, page.next is None
    if not everything:
        jobs += store.jobs(JobFilter(tenant, states=ACTIVE, id_suffix=digits), limit=CANDIDATES + 1).items
    # A store that ignores this condition must not return another job.
    return [job for job in jobs if job.id.hex.endswith(digits)], everything


def _nothing(text: str, *, everything: bool) -> str:
    if everything:
        return f"no job has an id that begins or ends with {text!r}; tidemill jobs list shows the ids"
    return (
        f"no job has an id that begins with {text!r}, and neither the newest {LOOK:,} jobs nor the active ones "
        "have one that ends with it; give the full id or its beginning"
    )


def _ambiguous(text: str, jobs: list[JobRow]) -> str:
    listed = "\n".join(f"  {job.id}  {job.state.value:<13}  {job.task}" for job in jobs[:CANDIDATES])
    more = "\n  …" if len(jobs) > CANDIDATES else ""
    return f"{text!r} matches several jobs; give more characters:\n{listed}{more}"


class Origin(NamedTuple):
    """The keys of a job's definition and schedule; None if the job has none, or if it was removed."""

    job: JobRow
    definition_key: str | None
    schedule_key: str | None

    @property
    def definition(self) -> str | None:
        """The definition as a text: its key (or its id, if it was removed) and the version."""
        details = self.job.details
        if details.definition_id is None:
            return None
        version = "" if details.definition_version is None else f", version {details.definition_version}"
        return f"{self.definition_key or details.definition_id}{version}"

    @property
    def schedule(self) -> str | None:
        """The schedule as a text: its key, or its id if it was removed."""
        if self.job.details.schedule_id is None:
            return None
        return self.schedule_key or f"{self.job.details.schedule_id} (removed)"


def origin(store: Store, job: JobRow) -> Origin:
    """Look up the definition and the schedule of a job."""
    details = job.details
    definition = schedule = None
    if details.definition_id is not None:
        rows = store.definitions(tenant=job.tenant, ids=[details.definition_id], deleted=True)
        definition = rows[0].key if rows else None
    if details.schedule_id is not None:
        schedules = store.schedules(tenant=job.tenant, ids=[details.schedule_id])
        schedule = schedules[0].key if schedules else None
    return Origin(job, definition, schedule)


TOGETHER = 5_000
"""Maximum number of jobs that a bulk action changes and audits in one transaction."""

Batch = Sequence[JobRow]
Where = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Acted:
    """Result of a bulk action: the number of changed jobs, and of jobs whose state did not allow it."""

    done: int
    skipped: int


def _in_each_shard(act: Callable[Concatenate[Jobs, P], Acted]) -> Callable[Concatenate[Jobs, P], Acted]:
    """Let a bulk action on jobs of all tenants run in every shard, each with transactions of its own."""

    @functools.wraps(act)
    def call(self: Jobs, /, *args: P.args, **given: P.kwargs) -> Acted:
        options: dict[str, Any] = dict(given)
        everywhere = options.get("store") is None and self._tenant(options.get("tenant")) == ALL_TENANTS
        clients = self._client.each_store() if everywhere else []
        if not clients:
            return act(self, *args, **given)
        parts = [act(Jobs(client), *args, **given) for client in clients]
        return Acted(sum(part.done for part in parts), sum(part.skipped for part in parts))

    return call


class Jobs:
    """The jobs of an app.

    Each method uses the current tenant unless it is called with another tenant, or with ``"*"`` for all tenants.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Job[Any]:
        """Return the job with that id from any tier, or raise ``JobNotFound``.

        The live tables are read first, then the archive tables, then archive files. An archived job has ``archived_at``
        and ``tier`` set. Without ``store``, the current store is searched first, then the app's other stores.
        """
        wanted = id_of(id)
        if wanted is None:
            raise JobNotFound("None is not a job's id")
        row, place = self._client.find(wanted, tenant=self._tenant(tenant), store=store)
        return Job(self._client, row, place)

    aget = async_twin(get)

    def why(self, id: UUID | str, *, tenant: str | None = None, store: str | None = None) -> Sequence[Reason]:
        """Return why the job is not running, or how it ended; the most important reason first."""
        return self.get(id, tenant=tenant, store=store).why()

    awhy = async_twin(why)

    @says_missing
    def list(
        self,
        /,
        *,
        limit: int = 100,
        cursor: str | None = None,
        sort: str = "newest",
        tiers: str | Collection[str] | None = None,
        store: str | None = None,
        **where: Any,
    ) -> Page[Job[Any]]:
        """Return one page of the jobs that match; ``page.next`` is the cursor of the next page.

        ``tiers`` adds archived jobs: ``"tables"`` those in databases, ``"all"`` also those in files, and a list such as
        ``["live", "warm"]`` those of named tiers. With ``text``, and with conditions on the contents of archived jobs, a
        page may hold fewer than ``limit`` jobs, or none, and still have a next page.
        """
        wanted, order, choice = self._filter(where, store), _sort(sort), read_tiers(tiers)
        if _is_empty(where.get("ids")):
            return Page([])
        if choice.archived:
            places = self._client.archive_places(choice, store=store)
            merged = merged_jobs(self._client.store(store), places, wanted, choice, sort=order)
            page = merged.page(limit, cursor)
        else:
            page = self._client.reader(store).jobs(wanted, sort=order, limit=limit, after=cursor)
        return Page([Job(self._client, row, store) for row in page.items], page.next)

    alist = async_twin(list)  # noqa: A003  (the method above)

    def stream(
        self,
        *,
        batch: int = 100,
        sort: str = "oldest",
        tiers: str | Collection[str] | None = None,
        store: str | None = None,
        **where: Any,
    ) -> Iterator[Job[Any]]:
        """Yield every job that matches, of the tiers as in ``list``, reading in batches."""
        cursor: str | None = None
        while True:
            page = self.list(limit=batch, cursor=cursor, sort=sort, tiers=tiers, store=store, **where)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    @says_missing
    def search_logs(
        self,
        text: str | None = None,
        *,
        level: str | None = None,
        task: str | Collection[str] | None = None,
        job: UUID | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tenant: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        store: str | None = None,
    ) -> Page[FoundLine]:
        """Return one page of the log lines of all jobs that match, newest first: ``search_logs("timeout", level="warning")``.

        The text is searched in the message; upper and lower case of ASCII letters are the same. ``level`` is the lowest
        one. A page may hold fewer than ``limit`` lines, or none, and still have a next page. Lines of archived jobs are
        not searched.
        """
        where = LogFilter(
            self._tenant(tenant),
            levels_from(level),
            frozenset(() if task is None else several(task)),
            None if job is None else id_of(job),
            instant(since),
            instant(until),
            text,
        )
        return self._client.reader(store).search_logs(where, limit=limit, after=cursor)

    asearch_logs = async_twin(search_logs)

    def count(self, /, *, store: str | None = None, **where: Any) -> int:
        """Count the jobs that match."""
        return sum(self.counts(store=store, **where).values())

    acount = async_twin(count)

    def counts(
        self, /, *, most: int | None = None, store: str | None = None, **where: Any
    ) -> dict[JobState, int]:
        """Count the matching jobs by status, up to ``most`` in total.

        ``text``, ``args``, ``error``, ``worker`` and ``took_over`` read every job that the other conditions leave.
        """
        if any(where.get(name) is not None for name in SCANNING):
            rows = self.stream(batch=1000, store=store, **where)
            return dict(Counter(row.status for row in (rows if most is None else islice(rows, most))))
        wanted, target = self._filter(where, store), self._client.reader(store)
        return {} if _is_empty(where.get("ids")) else target.count(wanted, most=most)

    acounts = async_twin(counts)

    # Bulk actions ----------------------------------------------------------------------------------------------------
    #
    # ``asked`` is the filter that the audit records, for callers that look up the ids themselves.

    @_in_each_shard
    def cancel(
        self,
        /,
        *,
        reason: str | None = None,
        store: str | None = None,
        asked: Where | None = None,
        **where: Any,
    ) -> Acted:
        """Cancel every job that matches; workers are asked to stop the jobs they hold.

        Cancelling starts with the newest job, because workers start with the oldest.
        """
        check_text("reason", reason)
        why = reason or "cancelled"
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return cancel_batch(target, batch, why)

        states = expected(Action.CANCEL) | HELD
        # Jobs enqueued from now on are newer than the first row read, so the rows can be streamed instead of read up
        # front.
        rows = self._found(where, store, states, sort="newest")
        return self._each("cancelled", rows, where, store, act, asked, reason=why)

    @_in_each_shard
    def retry(
        self,
        /,
        *,
        spread: Duration | None = None,
        store: str | None = None,
        asked: Where | None = None,
        **where: Any,
    ) -> Acted:
        """Give every ended job that matches another chain of attempts.

        With ``spread``, the jobs start evenly over that time instead of all at once.
        """
        target = self._client.store(store)
        rows = list(self._found(where, store, expected(Action.RETRY)))
        delays = spread_over(rows, spread)

        def act(batch: Batch) -> Collection[UUID]:
            changed = target.move([move(row, Action.RETRY, "retried manually") for row in batch])
            later = [row for row in batch if row.id in changed and delays.get(row.id)]
            target.move([put_off(row, delays[row.id]) for row in later])
            return changed

        more = {} if spread is None else {"spread": str(read_duration("spread", spread))}
        return self._each("retried", rows, where, store, act, asked, **more)

    @_in_each_shard
    def run_now(self, /, *, store: str | None = None, asked: Where | None = None, **where: Any) -> Acted:
        """Make every scheduled job that matches due now."""
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return target.move([move(row, Action.RUN_NOW, "run now", by=who()) for row in batch])

        rows = list(self._found(where, store, expected(Action.RUN_NOW)))
        return self._each("run_now", rows, where, store, act, asked)

    @_in_each_shard
    def reschedule(
        self,
        /,
        *,
        at: datetime | Duration,
        store: str | None = None,
        asked: Where | None = None,
        **where: Any,
    ) -> Acted:
        """Move every job that matches and has not started to another time: an instant, or a duration from now."""
        target = self._client.store(store)
        delay = delay_until(at, self._client.pin or target.now())

        def act(batch: Batch) -> Collection[UUID]:
            return target.move(
                [move(row, Action.RESCHEDULE, "rescheduled", delay, by=who()) for row in batch]
            )

        rows = list(self._found(where, store, expected(Action.RESCHEDULE)))
        return self._each("rescheduled", rows, where, store, act, asked, delay=str(delay))

    @_in_each_shard
    def delete(self, /, *, store: str | None = None, asked: Where | None = None, **where: Any) -> Acted:
        """Delete every ended job that matches, with its executions and logs."""
        target = self._client.store(store)

        def act(batch: Batch) -> Collection[UUID]:
            return target.delete([row.id for row in batch], tenant=self._tenant(where.get("tenant")))

        rows = list(self._found(where, store, ENDED))
        return self._each("deleted", rows, where, store, act, asked)

    @_in_each_shard
    def change(
        self,
        /,
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

    achange = async_twin(change)
    acancel = async_twin(cancel)
    aretry = async_twin(retry)
    arun_now = async_twin(run_now)
    areschedule = async_twin(reschedule)
    adelete = async_twin(delete)

    def _found(
        self, where: Where, store: str | None, states: frozenset[JobState], sort: str = "oldest"
    ) -> Iterator[JobRow]:
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
        return (replace(row.row, args="", result=None) for row in rows)

    def _each(
        self,
        verb: str,
        rows: Iterable[JobRow],
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
                told = [row for row in part if row.id in changed and not _asked_before(row)]
                if told:
                    before = {"status": dict(Counter(row.state.value for row in told))}
                    after = {
                        "filter": _words(asked or where),
                        "done": len(changed),
                        "skipped": len(part) - len(changed),
                        "ids": [str(row.id) for row in told[:NAMED]],
                        **more,
                    }
                    act_name, pin = f"jobs.{verb}", self._client.pin
                    note(target, act_name, "jobs", tenant, before=before, after=after, now=pin)
            self._publish(verb, told)
            done, seen = done + len(changed), seen + len(part)
        if seen:
            target.notify(["ended", "cancel", "change", "scheduled", "cascade"])
        return Acted(done, seen - done)

    def _publish(self, verb: str, jobs: Sequence[JobRow]) -> None:
        """Publish the action for each job, with the state that it led to."""
        states = {
            "cancelled": JobState.CANCELLED,
            "retried": JobState.PENDING,
            "run_now": JobState.PENDING,
            "rescheduled": JobState.SCHEDULED,
        }
        held = [row for row in jobs if row.state in HELD]
        free = [replace(row, state=states.get(verb, row.state)) for row in jobs if row.state not in HELD]
        self._client.publish_acts(f"job.{verb}", free)
        self._client.publish_acts("job.cancel_requested", held)

    # Conditions ------------------------------------------------------------------------------------------------------

    def _tenant(self, given: str | None) -> str:
        return given or current_tenant() or self._client.tenant

    def _filter(self, where: Mapping[str, Any], store: str | None = None) -> JobFilter:
        return job_filter(self._client.store(store), where, tenant=self._tenant(where.get("tenant")))


def _asked_before(row: JobRow) -> bool:
    """Whether cancellation of a held job was requested before; a second request changes nothing."""
    return row.state in HELD and row.cancel_reason is not None


def _words(where: Where) -> dict[str, object]:
    """Return a filter for the audit, with the number of ids in place of the ids."""
    filters = {name: plain(value) for name, value in where.items() if name != "ids"}
    if "ids" in where:
        filters["ids"] = len(list(several(where["ids"])))
    return filters


def _is_empty(given: Any) -> bool:
    """Whether a condition is an empty list, which no job can match."""
    return isinstance(given, list | tuple | set | frozenset) and not given


def _sort(name: str) -> Sort:
    try:
        return Sort(name)
    except ValueError:
        raise BadFilter(f"sort is {name!r}; choose newest or oldest") from None
