"""The arithmetic of counter rows, which all stores share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.graph import (
    ENDLESS_SPARE,
    Edge,
    EdgeCondition,
    EndOutcome,
    FlowState,
    Join,
    meets,
    outcome_of,
)
from tidemill.domain.states import JobState

GROUP_ENDS = "groups"
"""The wake-up topic of flows, maps and batches that have ended."""

UNREACHABLE = "a job it needs did not end as required"


class Ended(NamedTuple):
    """The end of a job or group; with ``back`` an end that is counted back."""

    id: UUID
    outcome: EndOutcome
    back: bool = False


class JoinCount(NamedTuple):
    """A change of one counter row."""

    id: UUID
    shard: int
    good: int = 0
    broken: int = 0
    bad: int = 0


class NeedState(NamedTuple):
    """A job or group that an edge names: its end, if it has ended, and the failed members of a group."""

    tenant: str
    end: JobState | FlowState | None
    is_group: bool = False
    bad: int = 0


Rows = Mapping[tuple[UUID, int], Join]


def summed(counts: Iterable[JoinCount]) -> dict[tuple[UUID, int], JoinCount]:
    """One change for each counter row."""
    sums: dict[tuple[UUID, int], JoinCount] = {}
    for count in counts:
        before = sums.get(count[:2], JoinCount(*count[:2]))
        sums[count[:2]] = JoinCount(*count[:2], *(a + b for a, b in zip(before[2:], count[2:], strict=True)))
    return sums


def changed(row: Join, count: JoinCount) -> Join:
    """A counter row after a change."""
    return row._replace(
        remaining=row.remaining - count.good, spare=row.spare - count.broken, bad=row.bad + count.bad
    )


def crossing(before: Join, after: Join) -> int:
    """1 if the row has just got all that it requires, -1 if it lacks something again, otherwise 0."""
    return (before.remaining > 0) - (after.remaining > 0)


def root_counts(
    counts: Mapping[tuple[UUID, int], JoinCount], leaves: Iterable[tuple[Join, Join]]
) -> dict[UUID, JoinCount]:
    """The changes of rows 0: their own counts, and one for each other shard that is full or no longer full."""
    roots = {id: count for (id, shard), count in counts.items() if shard == 0}
    for before, after in leaves:
        crossed = crossing(before, after)
        if crossed:
            bad = after.bad if crossed > 0 else -before.bad
            root = roots.get(after.id, JoinCount(after.id, 0))
            roots[after.id] = root._replace(good=root.good + crossed, bad=root.bad + bad)
    return roots


def is_unreachable(row: Join) -> bool:
    """Whether the job of a counter row can no longer start."""
    return row.spare < 0 and (row.shard > 0 or row.remaining > 0)


def is_lost(before: Join, after: Join) -> bool:
    """Whether a change makes the job of a join unreachable."""
    return before.spare >= 0 and is_unreachable(after)


def is_regained(before: Join, after: Join) -> bool:
    """Whether a change makes the job of a join reachable again."""
    return before.spare < 0 <= after.spare


def edge_count(edge: Edge, need: NeedState) -> JoinCount | None:
    """The change that a new edge counts at once, because its need has ended; None if it has not."""
    if edge.condition is EdgeCondition.FIRST_FAILURE and need.is_group:
        count = JoinCount(edge.job_id, edge.shard, need.bad, 0 if need.end is None else 1)
        return count if count.good or count.broken else None
    if need.end is None:
        return None
    met = meets(edge.condition, outcome_of(need.end))
    return JoinCount(edge.job_id, edge.shard, int(met), int(not met))


def expected_rows(rows: Sequence[Join], counts: Mapping[int, tuple[int, int, int]]) -> list[Join]:
    """The rows of a join as they must be, in the order of their shards, from the good, broken and bad ends of each shard."""
    found: list[Join] = []
    for row in sorted(rows, key=lambda row: -row.shard):
        good, broken, bad = counts.get(row.shard, (0, 0, 0))
        if row.shard == 0:
            closed = [leaf for leaf in found if leaf.remaining <= 0]
            good, bad = good + len(closed), bad + sum(leaf.bad for leaf in closed)
        # Shard 0 requires each other shard once, which is no need of its own.
        required = row.required - (len(rows) - 1 if row.shard == 0 else 0)
        spare = row.spare if row.spare > ENDLESS_SPARE // 2 else row.total - required - broken
        found.append(row._replace(remaining=row.required - good, spare=spare, bad=bad))
    return found[::-1]
