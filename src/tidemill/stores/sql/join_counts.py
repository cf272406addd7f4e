"""The counting of ends in the SQL store, within the transaction that writes them.

Locks are taken in this order: rows of jobs by id, counter rows by id and shard, rows 0 of joins with shards, groups. A group that
closes is counted in the same way, after that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.graph import (
    PAST_SHARD,
    Edge,
    EdgeCondition,
    EndOutcome,
    FlowState,
    Join,
    NewJoin,
    counts_of,
    end_of_group,
    meets,
    outcome_of,
)
from tidemill.domain.join_counts import (
    GROUP_ENDS,
    UNREACHABLE,
    Ended,
    JoinCount,
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
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import StoreBusy
from tidemill.stores.graph_checks import refuse_unknown
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import tenant_of

RELEASED: ContextVar[dict[UUID, str] | None] = ContextVar("tidemill_released", default=None)
"""The released jobs and their queues, within a step that claims jobs after that: only those that it leaves need a wake-up."""

_ROUNDS = 20  # looks for a job that moves from one table to another


class JoinCounts(SqlPart):
    """Base of the verbs that end, reopen or connect jobs."""

    def notify(self, topics: Iterable[str]) -> None:
        raise NotImplementedError

    def _count_ends(self, ends: Sequence[Ended], now: datetime | None) -> None:
        """Count ends for the jobs and groups that wait for them, and the ends of groups that this closes."""
        for back in (True, False):
            lot = [end for end in ends if end.back is back]
            if lot:
                self._apply(self._counts_of(lot), now)

    def _counts_of(self, ends: Sequence[Ended]) -> list[JoinCount]:
        by_id = {end.id: end for end in ends}
        ids = list(by_id)
        counts: list[JoinCount] = []
        failed: dict[UUID, int] = {}
        for id, group, shard, may_fail in self._db.run("memberships", {"ids": ids}):
            end = by_id[id]
            sign = -1 if end.back else 1
            bad = end.outcome is EndOutcome.FAILURE and not may_fail
            counts.append(JoinCount(group, shard, sign, 0, sign if bad else 0))
            if bad:
                failed[group] = failed.get(group, 0) + sign
        for job, need, condition, shard in self._db.run("edges_to", {"ids": ids}):
            end = by_id[need]
            sign = -1 if end.back else 1
            met = meets(EdgeCondition(condition), end.outcome)
            counts.append(JoinCount(job, shard, sign * met, sign * (not met)))
        if failed:
            takes = {"ids": list(failed), "condition": EdgeCondition.FIRST_FAILURE}
            counts += [
                JoinCount(job, shard, failed[group])
                for job, group, _, shard in self._db.run("edges_to", takes)
            ]
        return counts

    def _apply(self, counts: Iterable[JoinCount], now: datetime | None) -> None:
        """Change counter rows; release the jobs and close or reopen the groups whose join this fills or empties."""
        sums = summed(counts)
        if not sums:
            return
        # All rows at once, in their order; rows 0 that only follow from other shards come after them.
        rows = self._locked(sums)
        leaves = [
            (rows[key], changed(rows[key], count))
            for key, count in sums.items()
            if key[1] > 0 and key in rows
        ]
        roots = root_counts(sums, leaves)
        rows |= self._locked([(id, 0) for id in roots if (id, 0) not in rows])
        changes = leaves + [
            (rows[id, 0], changed(rows[id, 0], count)) for id, count in roots.items() if (id, 0) in rows
        ]
        self._put_joins([after for _, after in changes])
        self._note(changes, now)
        full = [after for before, after in changes if after.shard == 0 and crossing(before, after) > 0]
        emptied = [after.id for before, after in changes if after.shard == 0 and crossing(before, after) < 0]
        self._cross(full, emptied, now)

    def _cross(self, full: Sequence[Join], emptied: Sequence[UUID], now: datetime | None) -> None:
        ends: list[Ended] = []
        if emptied:
            ends += [
                Ended(id, outcome_of(FlowState(state)), back=True)
                for id, state in self._db.run("reopen_groups", {"ids": emptied})
            ]
        if full:
            ids = [row.id for row in full]
            released = self._db.run("release_jobs", {"now": now, "ids": ids})
            waking = RELEASED.get()
            if waking is None:
                self.notify(sorted({f"ready:{queue}" for _, queue in released}))
            else:
                waking.update(released)
            jobs = {id for id, _ in released}
            ends += self._close([row for row in full if row.id not in jobs], now)
        if ends:
            self._count_ends(ends, now)

    def _close(self, full: Sequence[Join], now: datetime | None) -> list[Ended]:
        """End the live groups among these joins."""
        bad = {row.id: row.bad for row in full}
        rows = self._db.run("lock_groups", {"ids": sorted(bad)}) if bad else []
        states = {
            row[0]: end_of_group(cancelled=row[13] is not None, bad=bad[row[0]])
            for row in rows
            if row[12] is None
        }
        if states:
            columns: dict[str, list[Any]] = {"id": list(states), "state": list(states.values())}
            self._db.run("close_groups", {"now": now}, columns)
            self.notify([GROUP_ENDS])
        return [Ended(id, outcome_of(state)) for id, state in states.items()]

    def _locked(self, keys: Collection[tuple[UUID, int]]) -> dict[tuple[UUID, int], Join]:
        if not keys:
            return {}
        pairs = json.dumps([[str(id), shard] for id, shard in keys])
        return {(row[0], row[1]): Join(*row) for row in self._db.run("lock_joins", {"pairs": pairs})}

    def _put_joins(self, rows: Sequence[Join]) -> None:
        if rows:
            names = Join._fields
            columns: dict[str, list[Any]] = {
                name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)
            }
            self._db.run("put_joins", None, columns)

    def _note(self, changes: Sequence[tuple[Join, Join]], now: datetime | None) -> None:
        lost = sorted({after.id for before, after in changes if is_lost(before, after)})
        if lost:
            self._db.run("note_unreachable", {"now": now, "ids": lost, "reason": UNREACHABLE})
            self.notify(["cascade"])
        regained = sorted({after.id for before, after in changes if is_regained(before, after)})
        if regained:
            # Needs in another shard may keep the job from starting.
            broken = {id for id, rows in self._joins(regained).items() if any(map(is_unreachable, rows))}
            self._db.run("drop_unreachable", {"ids": [id for id in regained if id not in broken]})

    def _note_again(self, ids: Collection[UUID], now: datetime | None) -> None:
        """Note waiting jobs that can still not start: an earlier note is gone, and their counts cross no border."""
        lost = sorted(id for id, rows in self._joins(ids).items() if any(map(is_unreachable, rows)))
        if lost:
            self._db.run("note_unreachable", {"now": now, "ids": lost, "reason": UNREACHABLE})
            self.notify(["cascade"])

    # Edges and joins -----------------------------------------------------------------------------------------------------

    def _tie(self, ids: Collection[UUID], tenant: str) -> dict[UUID, NeedState]:
        """Tie jobs and lock groups that edges need. Returns their states; raises ``JobNotFound`` for others."""
        needs: dict[UUID, NeedState] = {}
        wanted = set(ids)
        for _ in range(_ROUNDS):
            if not wanted:
                return needs
            for id, owner, ended in self._db.run("tie_needs", {"ids": sorted(wanted)}):
                needs[id] = NeedState(owner, None if ended is None else JobState(ended))
            wanted -= needs.keys()
            if wanted:
                needs |= self._groups(wanted)
                wanted -= needs.keys()
            if wanted:
                rows = self._db.run("archived", {"ids": sorted(wanted), "tenant": None})
                needs |= {row[0]: NeedState(row[1], JobState(row[4])) for row in rows}
                wanted -= needs.keys()
            refuse_unknown(id for id, need in needs.items() if tenant_of(tenant) not in (None, need.tenant))
            if wanted and not self._moving(wanted):
                refuse_unknown(wanted)
        raise StoreBusy(
            "a job moved between tables repeatedly while another one began to wait for it; try again"
        )

    def _moving(self, ids: Collection[UUID]) -> bool:
        """Whether these jobs exist, although a statement has just missed them."""
        return bool(self._db.run("job_states", {"ids": sorted(ids)}))

    def _groups(self, ids: Collection[UUID]) -> dict[UUID, NeedState]:
        needs: dict[UUID, NeedState] = {}
        rows = self._db.run("lock_groups", {"ids": sorted(ids)})
        joins = self._joins([row[0] for row in rows])
        for row in rows:
            id, tenant, state, ended_at, held = row[0], row[1], FlowState(row[5]), row[12], row[16]
            bad = counts_of(id, joins.get(id, []), held).bad
            needs[id] = NeedState(tenant, None if ended_at is None else state, True, bad)
        return needs

    def _joins(self, ids: Collection[UUID]) -> dict[UUID, list[Join]]:
        joins: dict[UUID, list[Join]] = {}
        for row in self._db.run("joins_of", {"ids": sorted(ids)}) if ids else ():
            joins.setdefault(row[0], []).append(Join(*row))
        return joins

    def _grow_joins(self, joins: Sequence[NewJoin], replaced: Collection[UUID]) -> list[JoinCount]:
        """Insert or grow joins. Returns the counts that follow: growth, and rows that need nothing from the start."""
        if replaced:
            self._db.run("drop_joins", {"ids": sorted(replaced)})
            self._db.run("retire_edges", {"ids": sorted(replaced), "shard": PAST_SHARD})
        ids = {row.id for row in joins}
        stored = self._joins(ids - set(replaced))
        keys = [(row.id, row.shard) for row in joins if row.id in stored and row.shard > 0]
        kept = self._locked(keys)
        kept |= self._locked(sorted({(row.id, 0) for row in joins if row.id in stored}))
        # Until rows 0 were locked, another transaction could add the same shard.
        kept |= self._locked([key for key in keys if key not in kept])
        counts: list[JoinCount] = []
        rows: dict[tuple[UUID, int], Join] = {}
        for row in joins:
            key = row.id, row.shard
            if row.id not in stored:
                # A row that needs nothing starts at one, so that its first count crosses zero like any other.
                remaining = max(row.remaining, 1) if row.shard == 0 else row.remaining
                rows[key] = Join(row.id, row.shard, remaining, row.spare, 0, row.total, row.remaining)
                if remaining > row.remaining:
                    counts.append(JoinCount(row.id, 0, remaining - row.remaining))
                continue
            old = rows.get(key, kept.get(key))
            spare = row.total - row.remaining
            if old is None:
                old, spare = Join(row.id, row.shard, 0, row.spare, 0, 0, 0), 0
                root = rows.get((row.id, 0), kept[row.id, 0])
                # Shard 0 requires one more count: that of the new shard.
                rows[row.id, 0] = root._replace(required=root.required + 1)
            rows[key] = old._replace(total=old.total + row.total, required=old.required + row.remaining)
            counts.append(JoinCount(row.id, row.shard, -row.remaining, -spare))
        self._put_joins(list(rows.values()))
        return counts

    def _put_edges(
        self,
        edges: Sequence[Edge],
        needs: dict[UUID, NeedState],
        fresh: Collection[UUID],
        now: datetime | None,
    ) -> list[JoinCount]:
        """Write edges. Returns what they count at once; an edge that exists counts only if the join of its job is ``fresh``."""
        if not edges:
            return []
        old = [edge.job_id for edge in edges if edge.job_id not in fresh]
        known: set[tuple[UUID, UUID]] = set()
        if old:
            known = {(job, need) for job, need, _, _ in self._db.run("edges_of", {"ids": sorted(set(old))})}
        columns: dict[str, list[Any]] = {
            "job_id": [edge.job_id for edge in edges],
            "needs_id": [edge.needs_id for edge in edges],
            "condition": [edge.condition for edge in edges],
            "shard": [edge.shard for edge in edges],
        }
        self._db.run("put_edges", {"now": now}, columns)
        added = [
            edge for edge in edges if edge.needs_id in needs and (edge.job_id, edge.needs_id) not in known
        ]
        counts = (edge_count(edge, needs[edge.needs_id]) for edge in added)
        return [count for count in counts if count is not None]

    def _repair(self, ids: Collection[UUID], now: datetime | None) -> frozenset[UUID]:
        """Recount the joins of waiting jobs and live groups. Returns the ids that were wrong."""
        joins = self._joins(ids)
        locked = self._locked(_shard_keys(joins))
        locked |= self._locked(sorted((id, 0) for id in joins))
        # Until rows 0 were locked, other transactions could add shards: a join without them looks unreachable.
        locked |= self._locked([key for key in _shard_keys(self._joins(ids)) if key not in locked])
        states = {id: state for id, state, _ in self._db.run("job_states", {"ids": sorted(joins)})}
        live = {row[0] for row in self._db.run("lock_groups", {"ids": sorted(joins)}) if row[12] is None}
        waiting = {id for id, state in states.items() if state == JobState.WAITING}
        ends = self._edge_ends(waiting) | self._member_ends(live)
        wrong: dict[UUID, list[tuple[Join, Join]]] = {}
        for id in sorted(waiting | live):
            rows = sorted((row for key, row in locked.items() if key[0] == id), key=lambda row: row.shard)
            pairs = list(zip(rows, expected_rows(rows, ends.get(id, {})), strict=True))
            if any(before != after for before, after in pairs):
                wrong[id] = pairs
        changes = [pair for pairs in wrong.values() for pair in pairs]
        # Rows 0 are counted after that, so that jobs are released and groups closed.
        self._put_joins(
            [
                after._replace(remaining=before.remaining) if not after.shard else after
                for before, after in changes
            ]
        )
        self._note(changes, now)
        self._apply(
            [
                JoinCount(after.id, 0, before.remaining - after.remaining)
                for before, after in changes
                if not after.shard
            ],
            now,
        )
        return frozenset(wrong)

    def _edge_ends(self, ids: Collection[UUID]) -> dict[UUID, dict[int, tuple[int, int, int]]]:
        """The good and broken ends of the needs of waiting jobs, by shard."""
        ends: dict[UUID, dict[int, tuple[int, int, int]]] = {}
        if not ids:
            return ends
        edges = [
            Edge(job, need, EdgeCondition(condition), shard)
            for job, need, condition, shard in self._db.run("edges_of", {"ids": sorted(ids)})
            if job in ids
        ]
        needed = sorted({edge.needs_id for edge in edges})
        needs = {
            id: NeedState("", JobState(state) if state in ENDED else None)
            for id, state, _ in self._db.run("job_states", {"ids": needed})
        }
        needs |= self._groups(set(needed) - needs.keys())
        missing = sorted(set(needed) - needs.keys())
        if missing:
            rows = self._db.run("archived", {"ids": missing, "tenant": None})
            needs |= {row[0]: NeedState(row[1], JobState(row[4])) for row in rows}
        for edge in edges:
            count = edge_count(edge, needs[edge.needs_id]) if edge.needs_id in needs else None
            if count is not None:
                shards = ends.setdefault(edge.job_id, {})
                good, broken, _ = shards.get(edge.shard, (0, 0, 0))
                shards[edge.shard] = good + count.good, broken + count.broken, 0
        return ends

    def _member_ends(self, ids: Collection[UUID]) -> dict[UUID, dict[int, tuple[int, int, int]]]:
        """The ends of members of groups, by shard."""
        ends: dict[UUID, dict[int, tuple[int, int, int]]] = {}
        for group, shard, ended, bad in self._db.run("member_ends", {"ids": sorted(ids)}) if ids else ():
            ends.setdefault(group, {})[shard] = ended, 0, bad
        return ends


def _shard_keys(joins: Mapping[UUID, Iterable[Join]]) -> list[tuple[UUID, int]]:
    return sorted((row.id, row.shard) for rows in joins.values() for row in rows if row.shard)
