"""The verbs of durable functions that wait for other jobs: map, call, join and first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

from tidemill.domain.durations import read_duration
from tidemill.domain.graph import (
    OWNER,
    Edge,
    EdgeCondition,
    EndOutcome,
    GroupKind,
    NewGroup,
    edge_shard,
    group_joins,
    job_joins,
    outcome_of,
    shard_of,
)
from tidemill.domain.job import NewJob
from tidemill.domain.states import JobState
from tidemill.domain.steps import note_record, read_instant, read_note
from tidemill.engine.job_ends import GroupEnds, JobEnd
from tidemill.engine.step_operations import StepOperation, StepOutlet, StoreTime
from tidemill.engine.steps import StepLog, Talk
from tidemill.engine.suspension import Suspension
from tidemill.errors import JobCancelled, JobFailed, JobNotFound, UsageError
from tidemill.ids import new_id
from tidemill.tasks.ambient import Audited, collecting, stop_collecting
from tidemill.tasks.steps import Step
from tidemill.tasks.task import Declared

Failures = Literal["raise", "return", "stop"]
OnCancel = Literal["cancel", "leave"]

STOP = "@stop/"
"""Begins the name of the record of the failure that stopped a map."""

MOST_CHILDREN = 10_000
"""Jobs that one ``map`` may create: all of them are inserted in the transaction that suspends the job."""


class ReadEnds(StepOperation):
    """Reads jobs by id."""

    def __init__(self, ids: Sequence[UUID]) -> None:
        self._ids = ids

    def run(self, outlet: StepOutlet) -> list[JobEnd]:
        return outlet.job_ends(self._ids)


class ReadGroup(StepOperation):
    """Reads the members of a group."""

    def __init__(self, id: UUID) -> None:
        self._id = id

    def run(self, outlet: StepOutlet) -> GroupEnds:
        return outlet.group_ends(self._id)


class StopGroup(StepOperation):
    """Lets no further member of a group begin."""

    def __init__(self, id: UUID, reason: str) -> None:
        self._id, self._reason = id, reason

    def run(self, outlet: StepOutlet) -> None:
        outlet.stop_group(self._id, self._reason)


class Fetch(StepOperation):
    """Reads large results from their place."""

    def __init__(self, texts: Sequence[str | None]) -> None:
        self._texts = texts

    def run(self, outlet: StepOutlet) -> list[str | None]:
        return [None if text is None else outlet.fetch(text) for text in self._texts]


class _Collector:
    """Collects the jobs that a task enqueues, instead of writing them."""

    only = True
    is_open = True

    def __init__(self, declared: Declared) -> None:
        self.declared = declared
        self.jobs: list[NewJob] = []

    def add(self, jobs: Sequence[NewJob], audit: Sequence[Audited]) -> None:
        if audit:
            raise UsageError(
                f"task {jobs[0].task} is audited, so a durable function cannot start it; enqueue it in a step"
            )
        self.jobs += jobs


def new_jobs(log: StepLog, task: Any, calls: Iterable[Mapping[str, Any]]) -> list[NewJob]:
    """The jobs of these calls, built and checked as by ``enqueue``, and not written."""
    if not callable(getattr(task, "enqueue", None)):
        raise UsageError(f"{task!r} is not a task; declare it with @app.task and give that")
    collector = _Collector(log.outlet.declared)
    _, token = collecting(collector)
    try:
        if callable(many := getattr(task, "enqueue_many", None)):
            many(calls)
        else:
            for arguments in calls:
                task.enqueue(**arguments)
    finally:
        stop_collecting(token)
    for job in collector.jobs:
        if job.unique is not None:
            raise UsageError(
                f"task {job.task} is unique, so a durable function cannot wait for a new job of it"
            )
    return collector.jobs


# map and call ------------------------------------------------------------------------------------------------------------


def map_jobs(
    log: StepLog,
    name: str,
    task: Any,
    calls: Sequence[Mapping[str, Any]],
    failures: Failures,
    on_cancel: OnCancel,
) -> Talk[list[Any]]:
    """``ctx.map``."""
    if failures not in ("raise", "return", "stop"):
        raise UsageError(f"failures is {failures!r}; choose raise, return or stop")
    if on_cancel not in ("cancel", "leave"):
        raise UsageError(f"on_cancel is {on_cancel!r}; choose cancel or leave")
    records = yield from log.records()
    full = log.enter(Step(name).full_name)
    record = records.get(full)
    if record is None:
        yield from _start_map(log, full, task, list(calls), failures, on_cancel)
        return []
    groups = _MapGroups.of_note(_note_of(full, record, "jobs"))
    ends: GroupEnds = yield ReadGroup(groups.members)
    if failures == "stop":
        yield from _stop_after_failure(log, full, groups.members, ends)
    if not ends.is_ended:
        yield from log.suspend(full, _wait_for_groups(log, full, groups, len(ends.members)))
    failed = [end for end in ends.members if end.state is not JobState.COMPLETED]
    if failed and failures != "return":
        raise _failure(full, failed[0], len(failed), len(ends.members))
    return (yield from _values(full, task, ends.members))


class _MapGroups(NamedTuple):
    """The groups of a map.

    A map that stops at the first failure has a second group, whose only member is the group of the jobs. A job has one edge to a group:
    that to the first counts a failure, and that to the second counts the end.
    """

    members: UUID
    outer: UUID | None = None

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> _MapGroups:
        """The groups that a record names."""
        return cls(UUID(note["group"]), UUID(note["outer"]) if "outer" in note else None)

    def to_note(self) -> dict[str, str]:
        """The fields of a record."""
        return {"group": str(self.members)} | ({} if self.outer is None else {"outer": str(self.outer)})


def _stop_after_failure(log: StepLog, full: str, group: UUID, ends: GroupEnds) -> Talk[None]:
    """Raise the first failure, and cancel the other jobs. The failure is recorded, because jobs that are cancelled follow it."""
    records = yield from log.records()
    stop = f"{STOP}{full}"
    if stop in records:
        id = UUID(read_note(records[stop])["job"])
        first = next((end for end in ends.members if end.id == id), None)
    else:
        failed = [end for end in ends.members if end.is_ended and outcome_of(end.state) is EndOutcome.FAILURE]
        first = min(failed, key=lambda end: (end.finished_at is None, end.finished_at), default=None)
        if first is not None:
            yield from log.write(stop, note_record("stop", job=str(first.id)))
    if first is None:
        return
    if not ends.is_ended:
        yield StopGroup(group, f"job {first.id} of {full} failed")
    raise _failure(full, first)


def _start_map(
    log: StepLog,
    full: str,
    task: Any,
    calls: list[Mapping[str, Any]],
    failures: Failures,
    on_cancel: OnCancel,
) -> Talk[None]:
    if len(calls) > MOST_CHILDREN:
        raise UsageError(f"{full} would start {len(calls):,} jobs; one map starts at most {MOST_CHILDREN:,}")
    if not calls:
        return
    jobs, claim, id = new_jobs(log, task, calls), log.claim, new_id()
    members = tuple(
        job._replace(
            details=replace(
                job.details, group_id=id, group_shard=shard_of(place, len(jobs)), position=place, node=full
            )
        )
        for place, job in enumerate(jobs)
    )
    groups = _MapGroups(id, new_id() if failures == "stop" else None)
    correlation = jobs[0].details.correlation_id
    rules = {OWNER: claim.id.hex} if on_cancel == "cancel" else {}
    group = NewGroup(
        id,
        claim.tenant,
        GroupKind.MAP,
        full,
        group_id=groups.outer,
        rules=rules,
        correlation_id=correlation,
    )
    new_groups: tuple[NewGroup, ...] = (group,)
    joins = group_joins(id, len(jobs))
    if groups.outer is not None:
        outer = NewGroup(groups.outer, claim.tenant, GroupKind.MAP, full, correlation_id=correlation)
        new_groups, joins = (outer, group), joins + group_joins(groups.outer, 1)
    wait = _wait_for_groups(log, full, groups, len(jobs))
    yield from log.suspend(
        full,
        wait._replace(
            jobs=members,
            groups=new_groups,
            joins=(*wait.joins, *joins),
            records={full: note_record("jobs", **groups.to_note(), count=len(jobs))},
        ),
    )


def _wait_for_groups(log: StepLog, full: str, groups: _MapGroups, members: int) -> Suspension:
    own, reason = log.claim.id, f"waits for {members} jobs of {full}"
    if groups.outer is None:
        edges: tuple[Edge, ...] = (Edge(own, groups.members, EdgeCondition.END),)
        return Suspension(reason, edges=edges, joins=tuple(job_joins(own, 1)))
    edges = (
        Edge(own, groups.members, EdgeCondition.FIRST_FAILURE),
        Edge(own, groups.outer, EdgeCondition.END),
    )
    return Suspension(reason, edges=edges, joins=tuple(job_joins(own, 2, required=1)))


def call_job(log: StepLog, name: str, task: Any, arguments: Mapping[str, Any]) -> Talk[Any]:
    """``ctx.call``."""
    records = yield from log.records()
    full = log.enter(Step(name).full_name)
    record = records.get(full)
    if record is None:
        (job,) = new_jobs(log, task, [arguments])
        suspension = _wait_for_jobs(log, full, [job.id])
        new = {full: note_record("job", id=str(job.id))}
        yield from log.suspend(full, suspension._replace(jobs=(job,), records=new))
    id = UUID(_note_of(full, records[full], "job")["id"])
    (end,) = yield from _ended(log, full, [id])
    return (yield from _result(full, task, end))


# join and first ----------------------------------------------------------------------------------------------------------


def join_jobs(log: StepLog, given: Any) -> Talk[Any]:
    """``ctx.join``."""
    handles = list(given) if isinstance(given, list | tuple | set | frozenset) else [given]
    yield from log.records()
    full = log.enter("join")
    ends = yield from _ended(log, full, [_id_of(handle) for handle in handles])
    values = []
    for handle, end in zip(handles, ends, strict=True):
        values.append((yield from _result(full, handle, end)))
    return values if isinstance(given, list | tuple | set | frozenset) else values[0]


def first_of(log: StepLog, name: str, waitables: Mapping[str, Any]) -> Talk[tuple[str, Any]]:
    """``ctx.first``."""
    if not waitables:
        raise UsageError(
            f"first({name!r}) needs jobs or durations to wait for: first({name!r}, job=job, late='1h')"
        )
    records = yield from log.records()
    full = log.enter(Step(name).full_name)
    jobs = {key: _id_of(value) for key, value in waitables.items() if not _is_time(value)}
    record = records.get(full)
    which = None if record is None else _note_of(full, record, "first")["which"]
    if which is None:
        which = yield from _choose(log, full, jobs, waitables)
        yield from log.write(full, note_record("first", which=which))
    if which not in jobs:
        return which, None
    (end,) = yield from _ended(log, full, [jobs[which]])
    return which, (yield from _result(full, waitables[which], end))


def _choose(log: StepLog, full: str, jobs: Mapping[str, UUID], waitables: Mapping[str, Any]) -> Talk[str]:
    """The waitable that came first; suspends the job if none has."""
    now = yield StoreTime()
    records, times = (yield from log.records()), f"@times/{full}"
    noted = read_note(records[times])["times"] if times in records else {}
    wakes = {
        key: read_instant(noted, key) if key in noted else _instant(now, value)
        for key, value in waitables.items()
        if _is_time(value)
    }
    ends: list[JobEnd] = yield ReadEnds(list(jobs.values()))
    names = {id: key for key, id in jobs.items()}
    came = [(end.finished_at or now, names[end.id]) for end in ends if end.is_ended]
    came += [(at, key) for key, at in wakes.items() if at <= now]
    if came:
        return min(came)[1]
    new = {times: note_record("times", times={key: at.isoformat() for key, at in wakes.items()})}
    suspension = _wait_for_jobs(log, full, list(jobs.values()), required=1) if jobs else Suspension("")
    reason = f"waits for the first of {', '.join(waitables)}"
    until = min(wakes.values(), default=None)
    chosen: str = yield from log.suspend(
        full, suspension._replace(reason=reason, until=until, records={} if times in records else new)
    )
    return chosen


def _ended(log: StepLog, full: str, ids: Sequence[UUID]) -> Talk[list[JobEnd]]:
    """The jobs, all of which have ended; suspends the job until then."""
    ends: list[JobEnd] = yield ReadEnds(ids)
    if len(ends) < len(set(ids)):
        missing = next(id for id in ids if id not in {end.id for end in ends})
        raise JobNotFound(f"{full} waits for job {missing}, which does not exist", id=missing)
    left = [end.id for end in ends if not end.is_ended]
    if left:
        yield from log.suspend(full, _wait_for_jobs(log, full, left))
    by_id = {end.id: end for end in ends}
    return [by_id[id] for id in ids]


def _wait_for_jobs(log: StepLog, full: str, ids: Sequence[UUID], required: int | None = None) -> Suspension:
    own = log.claim.id
    if own in ids:
        raise UsageError(f"{full}: a job cannot wait for itself")
    count = len(ids)
    edges = tuple(
        Edge(own, id, EdgeCondition.END, edge_shard(place, count, required=required))
        for place, id in enumerate(ids)
    )
    reason = f"waits for job {ids[0]}" if count == 1 else f"waits for {count} jobs"
    return Suspension(reason, edges=edges, joins=tuple(job_joins(own, count, required=required)))


# Values ------------------------------------------------------------------------------------------------------------------


def _values(full: str, task: Any, ends: Sequence[JobEnd]) -> Talk[list[Any]]:
    texts = yield Fetch([end.result if end.state is JobState.COMPLETED else None for end in ends])
    return [
        _load(task, end, text) if end.state is JobState.COMPLETED else _failure(full, end)
        for end, text in zip(ends, texts, strict=True)
    ]


def _result(full: str, task: Any, end: JobEnd) -> Talk[Any]:
    if end.state is not JobState.COMPLETED:
        raise _failure(full, end)
    (text,) = yield Fetch([end.result])
    return _load(task, end, text)


def _load(task: Any, end: JobEnd, text: str | None) -> Any:
    """A result, by the type of the task if it is known."""
    declared = getattr(task, "_declared", None)
    if isinstance(declared, Declared):
        return declared.result.load(text, end.id)
    import json

    return None if text is None else json.loads(text)


def _failure(full: str, end: JobEnd, failed: int = 1, count: int = 1) -> Exception:
    several = f" ({failed} of {count} jobs did not complete)" if count > 1 else ""
    text = f"{full}: job {end.id} is {end.state}: {end.problem or 'no reason given'}{several}"
    kind = JobCancelled if end.state is JobState.CANCELLED else JobFailed
    return kind(text, id=end.id, status=end.state)


def _note_of(full: str, record: str, kind: str) -> dict[str, Any]:
    note = read_note(record)
    if note["is"] != kind:
        raise UsageError(f"step {full} was recorded as a {note['is']}; give the new step another name")
    return note


def _id_of(handle: Any) -> UUID:
    id = handle if isinstance(handle, UUID) else getattr(handle, "id", None)
    if not isinstance(id, UUID):
        raise UsageError(f"{handle!r} is not a job; give a job, its id, or a list of them")
    return id


def _is_time(value: Any) -> bool:
    return isinstance(value, timedelta | int | float | str | datetime) and not isinstance(value, bool)


def _instant(now: datetime, value: Any) -> datetime:
    return value if isinstance(value, datetime) else now + read_duration("first", value, error=UsageError)
