"""Which waiting jobs can never start, once some jobs are certain to be cancelled.

The store finds jobs whose own needs ended wrongly. This module looks ahead from them, so that a long chain is skipped in one round.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from tidemill.domain.graph import Edge, EdgeCondition, EndOutcome, Join, meets


class Cascade:
    """The jobs that are to be skipped, found layer by layer.

    The caller reads the edges to the newest layer and the joins of their jobs, and passes both to ``spread`` until no job is added.
    """

    def __init__(self, unreachable: Iterable[UUID]) -> None:
        #: each job to skip, with the need that makes it unreachable; None: the store found it
        self.skipped: dict[UUID, UUID | None] = dict.fromkeys(unreachable)
        self._counted: dict[tuple[UUID, int], tuple[int, int]] = {}
        self._seen = set[tuple[UUID, UUID]]()

    def spread(self, edges: Iterable[Edge], joins: Iterable[Join]) -> list[UUID]:
        """Count the cancelled needs of these edges, and return the jobs that can no longer start."""
        rows: dict[UUID, dict[int, Join]] = {}
        for join in joins:
            rows.setdefault(join.id, {})[join.shard] = join
        found: list[UUID] = []
        for edge in edges:
            key = edge.job_id, edge.needs_id
            if edge.needs_id not in self.skipped or edge.job_id in self.skipped or key in self._seen:
                continue
            row = rows.get(edge.job_id, {}).get(edge.shard)
            if row is None or edge.condition is EdgeCondition.FIRST_FAILURE:
                continue
            self._seen.add(key)
            good, broken = self._counted.get((edge.job_id, edge.shard), (0, 0))
            if meets(edge.condition, EndOutcome.CANCEL):
                good += 1
            else:
                broken += 1
            self._counted[edge.job_id, edge.shard] = good, broken
            if row.spare - broken < 0 and row.remaining - good > 0:
                self.skipped[edge.job_id] = edge.needs_id
                found.append(edge.job_id)
        return found
