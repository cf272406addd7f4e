"""The values of workflow graphs, and the arithmetic of joins.

A join counts the ends that a waiting job or a group still needs. Every policy (all, any, k of n, on failure, finally) becomes two
numbers: ``remaining``, the ends that must still count, and ``spare``, the ends that may still miss the condition of their edge.
The store only adds and subtracts; a join whose ``remaining`` reaches zero releases its job or closes its group, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import NewJob
from tidemill.domain.states import JobState
from tidemill.errors import UsageError

MOST_IN_ONE_ROW = 64
"""Joins of more needs or members than that are divided into shards, so that finishers do not wait for one row."""
SHARDS = 64
_BLOCK = 8  # neighbours that count into the same row, because one worker often ends them together
PAST_SHARD = -1
"""The shard of an edge of an earlier wait of a suspended job: it keeps the need from being deleted, and counts nothing."""
OWNER = "owner"
"""The rule of a map with the id, in hexadecimal digits, of the job whose cancel cancels the map."""
ENDLESS_SPARE = 2**31 - 1
"""The ``spare`` of a group, and of jobs that wait on after failures."""


class EdgeCondition(StrEnum):
    """The end of a need that an edge counts."""

    SUCCESS = "success"  #: it completed
    FAILURE = "failure"  #: it failed, timed out or was dead-lettered
    NOT_SUCCESS = "not_success"  #: it ended, but did not complete
    END = "end"  #: it ended, in any state
    FIRST_FAILURE = "first_failure"  #: a member of the group failed; the group may still run


class EndOutcome(StrEnum):
    """The end of a job or group, as edges see it."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCEL = "cancel"


class GroupKind(StrEnum):
    """The kind of a group of jobs."""

    FLOW = "flow"
    MAP = "map"
    BATCH = "batch"


class FlowState(StrEnum):
    """The state of a group."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Edge(NamedTuple):
    """``job_id`` waits for the end of ``needs_id``, a job or a group, and counts it in this shard of its join."""

    job_id: UUID
    needs_id: UUID
    condition: EdgeCondition = EdgeCondition.SUCCESS
    shard: int = 0


class NewJoin(NamedTuple):
    """One counter row of a waiting job or of a group.

    Rows of an id that has none are inserted as they are. Rows of an id that has a join are added to it, and shard 0, which counts the
    open shards, follows by itself. Rows of the finishing job replace its join, and its earlier edges are no longer counted.
    """

    id: UUID
    shard: int
    remaining: int
    spare: int
    total: int


@dataclass(frozen=True, slots=True)
class NewGroup:
    """A flow, map or batch: jobs that are counted together."""

    id: UUID
    tenant: str
    kind: GroupKind
    name: str
    key: str | None = None  #: a second start with this tenant, name and key returns the first flow
    group_id: UUID | None = None  #: the group that this group is a member of
    group_shard: int = 0
    rules: Mapping[str, object] = field(default_factory=dict)  #: on_failure, returns, finally, …; JSON
    expires_at: datetime | None = None
    created_by: str | None = None
    correlation_id: str | None = None
    held: int = 0  #: counts that an open batch holds in shard 0 of its join


class StepRecord(NamedTuple):
    """The recorded result of a step, fenced by the token ``number`` and the worker; the first value of a name stands."""

    job_id: UUID
    number: int
    worker: UUID | None
    name: str
    value: str


class Wait(NamedTuple):
    """A signal or an event that a suspended job waits for."""

    name: str
    match: str = ""
    event: bool = False
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Additions:
    """Rows that are written with the finish of a job, if it completes or suspends the job, or not at all.

    Edges and joins of the finishing job itself make it wait; if all that it needs has ended, it is pending instead. A new job that is
    a member, needs others or is needed has no unique key. Any other new job whose unique key is held is omitted.
    """

    jobs: tuple[NewJob, ...] = ()
    edges: tuple[Edge, ...] = ()
    joins: tuple[NewJoin, ...] = ()
    groups: tuple[NewGroup, ...] = ()
    records: tuple[StepRecord, ...] = ()
    waits: tuple[Wait, ...] = ()


class Join(NamedTuple):
    """A stored counter row. ``bad`` counts members that failed and may not."""

    id: UUID
    shard: int
    remaining: int
    spare: int
    bad: int
    total: int
    required: int  #: ``remaining`` before any end


class Started(NamedTuple):
    """The id of the started flow; that of the first flow with the same key if it was not ``created``."""

    id: UUID
    created: bool


class UnreachableJob(NamedTuple):
    """A waiting job that can no longer start, because too many ends missed the conditions of its edges."""

    job_id: UUID
    reason: str
    created_at: datetime


class GroupCounts(NamedTuple):
    """The members of a group: how many there are, have not ended, and failed although they may not."""

    id: UUID
    total: int
    remaining: int
    bad: int


class Recounted(NamedTuple):
    """A page of joins that was recounted: the ids that were repaired, and the id to continue after (None: the last page)."""

    repaired: frozenset[UUID]
    after: UUID | None


@dataclass(frozen=True, slots=True)
class FlowRow:
    """The record of a group."""

    id: UUID
    tenant: str
    kind: GroupKind
    name: str
    key: str | None
    state: FlowState
    created_at: datetime
    rules: Mapping[str, object] = field(default_factory=dict)
    group_id: UUID | None = None
    group_shard: int = 0
    created_by: str | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    cancel_reason: str | None = None
    stops: bool = False  #: no further member is to begin
    round: int = 1  #: rises with each retry
    held: int = 0
    correlation_id: str | None = None
    archived_at: datetime | None = None
    tier: str | None = None  #: of an archived flow


class FlowTotals(NamedTuple):
    """Numbers of flows and of waiting jobs, for metrics and alerts."""

    running: int = 0
    completed: int = 0  #: ended since a given instant, like the next two
    failed: int = 0
    cancelled: int = 0
    waiting_for_jobs: int = 0  #: for other jobs or groups
    waiting_for_signals: int = 0
    waiting_for_events: int = 0
    sleeping: int = 0
    unreachable: int = 0  #: waiting jobs that can no longer start and are not skipped yet
    unreachable_at: datetime | None = None  #: when the first of them was noted


@dataclass(frozen=True, slots=True)
class FlowFilter:
    """Conditions on groups; None means any."""

    tenant: str
    kinds: frozenset[GroupKind] = frozenset()
    name: str | None = None
    key: str | None = None
    states: frozenset[FlowState] = frozenset()
    group_id: UUID | None = None
    ending: bool = False  #: only live ones with ``stops`` or a cancel reason, and those that have expired
    abandoned: bool = False  #: only live maps without a cancel reason whose ``OWNER`` was cancelled
    now: datetime | None = None  #: the time that decides about expiry; None for the store's own


def outcome_of(state: JobState | FlowState) -> EndOutcome:
    """How edges see an end.

    >>> outcome_of(JobState.TIMED_OUT)
    <EndOutcome.FAILURE: 'failure'>
    """
    if state.value == "completed":
        return EndOutcome.SUCCESS
    return EndOutcome.CANCEL if state.value == "cancelled" else EndOutcome.FAILURE


def end_of_group(*, cancelled: bool, bad: int) -> FlowState:
    """The state in which a group ends: it failed if a member failed that may not."""
    if cancelled:
        return FlowState.CANCELLED
    return FlowState.FAILED if bad > 0 else FlowState.COMPLETED


def meets(condition: EdgeCondition, outcome: EndOutcome) -> bool:
    """Whether an end counts for an edge. ``FIRST_FAILURE`` counts members of a group, never its end.

    >>> meets(EdgeCondition.NOT_SUCCESS, EndOutcome.CANCEL), meets(EdgeCondition.FAILURE, EndOutcome.CANCEL)
    (True, False)
    """
    if condition is EdgeCondition.END or condition.value == outcome.value:
        return True
    return condition is EdgeCondition.NOT_SUCCESS and outcome is not EndOutcome.SUCCESS


def shard_of(position: int, count: int) -> int:
    """The row into which the need or member at this position counts.

    >>> shard_of(9, 10), shard_of(9, 1_000), shard_of(8 * 64, 1_000)
    (0, 2, 1)
    """
    return 0 if count <= MOST_IN_ONE_ROW else 1 + (position // _BLOCK) % SHARDS


def job_joins(id: UUID, needs: int, *, required: int | None = None, hold: bool = False) -> list[NewJoin]:
    """The join of a job with this many needs, of which ``required`` must count (None: all).

    With ``hold``, no end makes the job unreachable. Only joins that require all needs are divided into shards.

    >>> [row[2:] for row in job_joins(UUID(int=1), 5, required=2)]
    [(2, 3, 5)]
    """
    wanted = needs if required is None else required
    if not 0 < wanted <= needs:
        raise UsageError(f"a job cannot require {wanted} of {needs} needs", required=wanted, needs=needs)
    spare = ENDLESS_SPARE if hold else needs - wanted
    if required is not None or needs <= MOST_IN_ONE_ROW:
        return [NewJoin(id, 0, wanted, spare, needs)]
    return _sharded(id, needs, 0, spare)


def edge_shard(position: int, needs: int, *, required: int | None = None) -> int:
    """The shard of the edge at this position of a job; the twin of ``job_joins``."""
    return 0 if required is not None else shard_of(position, needs)


def group_joins(id: UUID, members: int, *, held: int = 0) -> list[NewJoin]:
    """The join of a group with this many members at positions from 0 on.

    >>> [(row.shard, row.remaining, row.total) for row in group_joins(UUID(int=1), 3, held=1)]
    [(0, 4, 3)]
    """
    if members <= MOST_IN_ONE_ROW:
        return [NewJoin(id, 0, members + held, ENDLESS_SPARE, members)]
    return _sharded(id, members, held, ENDLESS_SPARE)


def _sharded(id: UUID, count: int, held: int, spare: int) -> list[NewJoin]:
    sizes = Counter(shard_of(position, count) for position in range(count))
    rows = [NewJoin(id, shard, size, spare, size) for shard, size in sorted(sizes.items())]
    return [NewJoin(id, 0, len(rows) + held, spare, 0), *rows]


def grown_joins(id: UUID, first: int, members: int) -> list[NewJoin]:
    """The rows to add to the join of a group that gets members at positions from ``first`` on; they count into shards 1 to 64."""
    sizes = Counter(grown_shard(first + place) for place in range(members))
    return [NewJoin(id, shard, size, ENDLESS_SPARE, size) for shard, size in sorted(sizes.items())]


def grown_shard(position: int) -> int:
    """The row into which a member that was added later counts.

    >>> grown_shard(0), grown_shard(8)
    (1, 2)
    """
    return 1 + (position // _BLOCK) % SHARDS


def counts_of(id: UUID, rows: Iterable[Join], held: int = 0) -> GroupCounts:
    """The members of a group from the rows of its join."""
    root, shards = None, []
    for row in rows:
        if row.shard == 0:
            root = row
        else:
            shards.append(row)
    total = sum(row.total for row in shards) + (root.total if root else 0)
    remaining = sum(max(row.remaining, 0) for row in shards)
    open_shards = sum(row.remaining > 0 for row in shards)
    if root is not None:
        remaining += max(root.remaining - held - open_shards, 0)
    bad = sum(row.bad for row in shards if row.remaining > 0) + (root.bad if root else 0)
    return GroupCounts(id, total, remaining, bad)


def tied_jobs(jobs: Sequence[NewJob], edges: Iterable[Edge]) -> list[NewJob]:
    """These jobs, with ``tied`` set where their end must be counted or their flow keeps them.

    That is so for members, for jobs that another one needs, and for callbacks of a batch.
    """
    needed = {edge.needs_id for edge in edges}
    return [
        job._replace(tied=True)
        if job.details.group_id is not None or job.details.flow_id is not None or job.id in needed
        else job
        for job in jobs
    ]
