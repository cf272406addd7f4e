"""The counting of ends in memory: the reference for ``count_ends`` of the other stores."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.graph import (
    PAST_SHARD,
    Edge,
    EdgeCondition,
    EndOutcome,
    FlowRow,
    FlowState,
    Join,
    NewJoin,
    UnreachableJob,
    counts_of,
    end_of_group,
    meets,
    outcome_of,
)
from tidemill.domain.join_counts import (
    GROUP_ENDS,
    UNREACHABLE,
    Ended,
    NeedState,
    changed,
    crossing,
    edge_count,
    expected_rows,
    is_lost,
    is_regained,
    is_unreachable,
    root_counts,
    summed,
)
from tidemill.domain.join_counts import JoinCount as Count
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.memory.state import State


def count_ends(state: State, ends: Iterable[Ended], now: datetime) -> set[str]:
    """Count ends for the jobs and groups that wait for them, and the ends of groups that this closes. Returns wake-up topics."""
    topics: set[str] = set()
    forward = [end for end in ends if not end.back]
    backward = [end for end in ends if end.back]
    for lot in (backward, forward):
        counts = [count for end in lot for count in _counts_of_end(state, end)]
        topics |= apply(state, counts, now)
    return topics


def apply(state: State, counts: Iterable[Count], now: datetime) -> set[str]:
    """Change counter rows; release the jobs and close or reopen the groups whose join this fills or empties.

    Returns the wake-up topics of queues that grew, and of groups that ended.
    """
    sums = summed(counts)
    leaves = [
        (row, _changed(state, row, count, now))
        for (id, shard), count in sums.items()
        if shard > 0 and (row := state.joins.get(id, {}).get(shard)) is not None
    ]
    full: list[UUID] = []
    emptied: list[UUID] = []
    for id, count in root_counts(sums, leaves).items():
        row = state.joins.get(id, {}).get(0)
        if row is None:
            continue
        crossed = crossing(row, _changed(state, row, count, now))
        if crossed:
            (full if crossed > 0 else emptied).append(id)
    ends = [end for id in emptied if (end := _reopened(state, id)) is not None]
    closed = [end for id in full if (end := _closed(state, id, now)) is not None]
    topics = {f"ready:{queue}" for id in full if (queue := release(state, id, now)) is not None}
    if closed:
        topics.add(GROUP_ENDS)
    return topics | count_ends(state, ends + closed, now) if ends or closed else topics


def release(state: State, id: UUID, now: datetime) -> str | None:
    """Make a waiting job pending. Returns its queue; None if it does not wait."""
    job = state.jobs.get(id)
    if job is None or job.state is not JobState.WAITING:
        return None
    state.place(replace(job, state=JobState.PENDING, run_at=now, reason=None))
    state.unreachable.pop(id, None)
    return job.queue


def need_counts(state: State, edge: Edge) -> Count | None:
    """The change that a new edge counts at once, because its need has ended; None if it has not."""
    need, flow = state.jobs.get(edge.needs_id), state.flows.get(edge.needs_id)
    if need is not None:
        found = NeedState(need.tenant, need.state if need.state in ENDED else None)
    elif flow is not None:
        bad = counts_of(flow.id, state.joins.get(flow.id, {}).values(), flow.held).bad
        found = NeedState(flow.tenant, flow.state if flow.ended_at is not None else None, True, bad)
    else:
        found = NeedState(state.archive[edge.needs_id].tenant, state.archive[edge.needs_id].state)
    return edge_count(edge, found)


def waiters(state: State, id: UUID, new: Sequence[Edge] = (), hops: int = 100) -> set[UUID]:
    """The jobs and groups that wait, directly or not, for the end of a job or group, also by ``new`` edges."""
    seen: set[UUID] = set()
    layer = {id}
    for _ in range(hops):
        following: set[UUID] = set()
        for one in layer:
            following |= {edge.job_id for edge in _edges_to(state, one) if edge.shard != PAST_SHARD}
            following |= {edge.job_id for edge in new if edge.needs_id == one}
            group = group_of(state, one)[0]
            if group is not None:
                following.add(group)
        layer = following - seen
        if not layer:
            break
        seen |= layer
    return seen


def group_of(state: State, id: UUID) -> tuple[UUID | None, int, bool]:
    """The group that counts the end of a job or group, the shard, and whether it may fail."""
    job = state.jobs.get(id)
    if job is not None:
        return job.details.group_id, job.details.group_shard or 0, job.details.may_fail
    flow = state.flows.get(id)
    return (None, 0, False) if flow is None else (flow.group_id, flow.group_shard, False)


def expected(state: State, id: UUID) -> list[Join]:
    """The rows of a join as they must be, from edges, members and ends."""
    flow = state.flows.get(id)
    counts = _members(state, flow) if flow is not None else _needs(state, id)
    return expected_rows(list(state.joins[id].values()), counts)


def _needs(state: State, id: UUID) -> dict[int, tuple[int, int, int]]:
    """The counts of each shard of a waiting job."""
    counts: dict[int, tuple[int, int, int]] = {}
    for edge in state.edges.get(id, {}).values():
        count = need_counts(state, edge) if _exists(state, edge.needs_id) else None
        if count is not None:
            good, broken, bad = counts.get(edge.shard, (0, 0, 0))
            counts[edge.shard] = good + count.good, broken + count.broken, bad
    return counts


def _exists(state: State, id: UUID) -> bool:
    return id in state.jobs or id in state.flows or id in state.archive


def _members(state: State, flow: FlowRow) -> dict[int, tuple[int, int, int]]:
    """The counts of each shard of a group; shard 0 also has the counts that it no longer holds."""
    counts: dict[int, tuple[int, int, int]] = {}
    ends: list[tuple[int, bool]] = [
        (
            job.details.group_shard or 0,
            outcome_of(job.state) is EndOutcome.FAILURE and not job.details.may_fail,
        )
        for job in state.jobs.values()
        if job.details.group_id == flow.id and job.state in ENDED
    ]
    ends += [
        (child.group_shard, outcome_of(child.state) is EndOutcome.FAILURE)
        for child in state.flows.values()
        if child.group_id == flow.id and child.ended_at is not None
    ]
    for shard, failed in ends:
        good, broken, bad = counts.get(shard, (0, 0, 0))
        counts[shard] = good + 1, broken, bad + failed
    return counts


def _counts_of_end(state: State, end: Ended) -> Iterable[Count]:
    sign = -1 if end.back else 1
    group, shard, may_fail = group_of(state, end.id)
    failed = end.outcome is EndOutcome.FAILURE and not may_fail
    if group is not None:
        yield Count(group, shard, sign, 0, sign if failed else 0)
    for edge in _edges_to(state, end.id):
        met = meets(edge.condition, end.outcome)
        yield Count(edge.job_id, edge.shard, sign * met, sign * (not met))
    if group is not None and failed:
        for edge in _edges_to(state, group):
            if edge.condition is EdgeCondition.FIRST_FAILURE:
                yield Count(edge.job_id, edge.shard, sign)


def _edges_to(state: State, id: UUID) -> Sequence[Edge]:
    return [state.edges[job][id] for job in state.needed.get(id, ())]


def _changed(state: State, row: Join, count: Count, now: datetime) -> Join:
    after = state.joins[row.id][row.shard] = changed(row, count)
    if is_lost(row, after):
        state.unreachable.setdefault(row.id, UnreachableJob(row.id, UNREACHABLE, now))
    elif is_regained(row, after) and not any(map(is_unreachable, state.joins[row.id].values())):
        state.unreachable.pop(row.id, None)
    return after


def _closed(state: State, id: UUID, now: datetime) -> Ended | None:
    flow = state.flows.get(id)
    if flow is None or flow.ended_at is not None:
        return None
    end = end_of_group(cancelled=flow.cancel_reason is not None, bad=state.joins[id][0].bad)
    state.flows[id] = replace(flow, state=end, ended_at=now)
    return Ended(id, outcome_of(end))


def _reopened(state: State, id: UUID) -> Ended | None:
    flow = state.flows.get(id)
    if flow is None or flow.ended_at is None:
        return None
    state.flows[id] = replace(flow, state=FlowState.RUNNING, ended_at=None, round=flow.round + 1)
    return Ended(id, outcome_of(flow.state), back=True)


def put_joins(state: State, joins: Sequence[NewJoin], replaced: Collection[UUID]) -> list[Count]:
    """Insert or grow joins. Returns the counts that follow: growth, and rows that need nothing from the start."""
    for id in replaced:
        state.joins.pop(id, None)
        for edge in [*state.edges.get(id, {}).values()]:
            state.put_edge(edge._replace(shard=PAST_SHARD))
    new = {row.id for row in joins if row.id not in state.joins}
    counts: list[Count] = []
    for row in joins:
        rows = state.joins.setdefault(row.id, {})
        if row.id in new:
            # A row that needs nothing starts at one, so that its first count crosses zero like any other.
            remaining = max(row.remaining, 1) if row.shard == 0 else row.remaining
            rows[row.shard] = Join(row.id, row.shard, remaining, row.spare, 0, row.total, row.remaining)
            if remaining > row.remaining:
                counts.append(Count(row.id, 0, remaining - row.remaining))
            continue
        kept = rows.get(row.shard)
        if kept is None:
            kept = rows[row.shard] = Join(row.id, row.shard, 0, row.spare, 0, 0, 0)
            root = rows[0]
            # Shard 0 requires one more count: that of the new shard.
            rows[0] = root._replace(required=root.required + 1)
            spare = 0
        else:
            spare = row.total - row.remaining
        rows[row.shard] = kept._replace(total=kept.total + row.total, required=kept.required + row.remaining)
        counts.append(Count(row.id, row.shard, -row.remaining, -spare))
    return counts


def note_again(state: State, ids: Iterable[UUID], now: datetime) -> None:
    """Note waiting jobs that can still not start: an earlier note is gone, and their counts cross no border."""
    for id in ids:
        if any(map(is_unreachable, state.joins.get(id, {}).values())):
            state.unreachable.setdefault(id, UnreachableJob(id, UNREACHABLE, now))
