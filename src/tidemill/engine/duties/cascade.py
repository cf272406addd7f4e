"""Cascade: skips jobs of flows that can no longer start, and carries out stops and cancels.

Each round is one transaction. A round that is lost is repeated by the next leader, because its causes are stored with the ends that
created them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cascade import Cascade
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.flow_states import SKIP_REASON, node_label
from tidemill.domain.graph import (
    OWNER,
    Edge,
    EdgeCondition,
    FlowFilter,
    FlowRow,
    GroupKind,
    meets,
    outcome_of,
)
from tidemill.domain.job import JobRow, Move
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.domain.steps import UNDO_OPTION
from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=10)
REST = timedelta(seconds=30)
PAGE = 500
MOST = 5_000
"""Jobs that one round looks ahead."""
_WAITING = frozenset({JobState.WAITING})
_NOT_BEGUN = frozenset({JobState.WAITING, JobState.PENDING, JobState.SCHEDULED, JobState.REVIEW_NEEDED})
_STOPS = f"{SKIP_REASON}the flow stops after a failure"


@dataclass(slots=True)
class _Seen:
    """The rows that one round has read."""

    edges: dict[UUID, list[Edge]] = field(default_factory=dict)  #: by the waiting job
    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    groups: dict[UUID, FlowRow] = field(default_factory=dict)


class CascadeDuty:
    """One page of unreachable jobs, of stopped and cancelled flows, and of expired flows."""

    def __init__(self, store: Store, clock: Clock, *, pinned: bool = False) -> None:
        self._store, self._clock, self._pinned = store, clock, pinned
        # Flows with more jobs than a round cancels, and how far the rounds have read.
        self._reached: dict[UUID, UUID | int] = {}

    def __call__(self) -> Done:
        skipped, more = self._skip()
        more = self._abandon() or more
        where = FlowFilter(ALL_TENANTS, ending=True, now=self._now())
        flows = self._store.flows(where, limit=PAGE)
        expired = self._expire(flows)
        if expired:
            flows = self._store.flows(where, limit=PAGE)
        stopped, rest = self._stop(flows)
        return Done(expired + skipped + stopped, more=more or rest)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. The end of a job that makes another one unreachable wakes it."""
        return Duty("cascade", every, self, frozenset({"cascade"}), at_rest=max(every, REST))

    # Unreachable jobs --------------------------------------------------------------------------------------------------

    def _skip(self) -> tuple[int, bool]:
        """Cancel jobs that can no longer start, and the jobs that need them."""
        store = self._store
        noted = store.unreachable(PAGE)
        if not noted:
            return 0, False
        cascade, seen = Cascade(note.job_id for note in noted), _Seen()
        layer = list(cascade.skipped)
        while layer and len(cascade.skipped) < MOST:
            layer = self._next_layer(cascade, layer, seen)
        self._read_names(cascade, seen)
        rows = [seen.jobs[id] for id in cascade.skipped if id in seen.jobs]
        moves = [
            Move(row.id, row.tenant, _WAITING, JobState.CANCELLED, self._reason(row, cascade, seen))
            for row in rows
            if row.state is JobState.WAITING
        ]
        with store.transaction():
            # A retry of a need may have come first. Its count waits for these locks from now on.
            still = store.still_unreachable([note.job_id for note in noted])
            if len(still) < len(noted):
                store.drop_unreachable([note.job_id for note in noted if note.job_id not in still])
                return 0, True
            self._cancel_groups(rows, seen)
            changed = store.move(moves, now=self._now())
            store.drop_unreachable([note.job_id for note in noted])
        wake(store, {"ended", *(f"ready:{queue}" for queue in self._queues(rows, seen))} if changed else ())
        return len(changed), len(noted) >= PAGE or bool(changed)

    def _next_layer(self, cascade: Cascade, layer: list[UUID], seen: _Seen) -> list[UUID]:
        found: list[UUID] = []
        for at in range(0, len(layer), PAGE):
            edges = self._store.edges_of(layer[at : at + PAGE])
            for edge in edges:
                seen.edges.setdefault(edge.job_id, []).append(edge)
            ids = set(layer)
            after = [edge for edge in edges if edge.needs_id in ids]
            joins = self._store.joins_of({edge.job_id for edge in after}) if after else []
            found += cascade.spread(after, joins)
        return found

    def _read_names(self, cascade: Cascade, seen: _Seen) -> None:
        needed = {edge.needs_id for id in cascade.skipped for edge in seen.edges.get(id, ())}
        ids = [*cascade.skipped, *(needed - set(cascade.skipped))]
        for at in range(0, len(ids), PAGE):
            seen.jobs |= {job.id: job for job in self._store.get(ids[at : at + PAGE], tenant=ALL_TENANTS)}
        groups = {row.details.group_id for row in seen.jobs.values() if row.details.group_id is not None}
        wanted = [*(groups | {id for id in needed if id not in seen.jobs})]
        for at in range(0, len(wanted), PAGE):
            page = self._store.flow(wanted[at : at + PAGE], tenant=ALL_TENANTS)
            seen.groups |= {row.id: row for row in page}

    def _reason(self, row: JobRow, cascade: Cascade, seen: _Seen) -> str:
        need = cascade.skipped.get(row.id)
        if need is not None and need in seen.jobs:
            return f"{SKIP_REASON}needs {_name(seen.jobs[need])}, which was skipped"
        for edge in seen.edges.get(row.id, ()):
            if edge.job_id != row.id:
                continue
            if edge.condition is EdgeCondition.FIRST_FAILURE:
                return f"{SKIP_REASON}no node failed"
            if UNDO_OPTION in row.details.options and edge.condition is EdgeCondition.NOT_SUCCESS:
                return f"{SKIP_REASON}{row.reason or 'a compensation'}, and it completed"
            if text := _broken(edge, seen.jobs.get(edge.needs_id), seen.groups.get(edge.needs_id)):
                return f"{SKIP_REASON}{text}"
        return f"{SKIP_REASON}a node that it needs did not end as it must"

    def _cancel_groups(self, rows: Iterable[JobRow], seen: _Seen) -> None:
        """Mark groups whose first jobs are skipped as cancelled, so that what needs them is skipped as well."""
        done = set[UUID]()
        for row in rows:
            group = seen.groups.get(row.details.group_id) if row.details.group_id is not None else None
            starts = group.rules.get("starts", ()) if group is not None else ()
            while group is not None and group.id not in done and str(row.id) in _listed(starts):
                done.add(group.id)
                self._store.change_flow(
                    group.id,
                    tenant=group.tenant,
                    cancel_reason=f"{SKIP_REASON}it cannot start",
                    now=self._now(),
                )

    def _queues(self, rows: Iterable[JobRow], seen: _Seen) -> set[str]:
        return {row.queue for row in rows} | {row.queue for row in seen.jobs.values()}

    def _abandon(self) -> bool:
        """Cancel the maps whose durable functions were cancelled. Returns whether there may be more."""
        maps = self._store.flows(FlowFilter(ALL_TENANTS, abandoned=True), limit=PAGE)
        for row in maps:
            why = f"job {UUID(str(row.rules[OWNER]))} was cancelled, which waited for it"
            self._store.change_flow(row.id, tenant=row.tenant, cancel_reason=why, now=self._now())
        return len(maps) >= PAGE

    # Stops, cancels and expiry -----------------------------------------------------------------------------------------

    def _stop(self, flows: Iterable[FlowRow]) -> tuple[int, bool]:
        """Cancel one page of jobs of each flow that stops or is cancelled, and ask running ones to stop."""
        done, more = 0, False
        for flow in flows:
            if not flow.stops and flow.cancel_reason is None:
                continue
            changed = self._stop_one(flow)
            done += changed
            more = more or flow.id in self._reached
        return done, more

    def _stop_one(self, flow: FlowRow) -> int:
        """Cancel the jobs of a flow, page by page. A round that cancels many leaves the rest to the next one."""
        cancelled = flow.cancel_reason is not None
        kept = self._kept(flow, handlers=not cancelled)
        asks = cancelled or bool(flow.rules.get("stop_running"))
        reason = flow.cancel_reason or _STOPS
        done = 0
        for page, reached in self._pages(flow, self._reached.pop(flow.id, None)):
            jobs = [job for job in page if str(job.id) not in kept]
            done += self._cancel(flow, jobs, reason, asks=asks)
            if done >= MOST:
                self._reached[flow.id] = reached
                break
        if done:
            wake(self._store, {"ended", "cancel", "cascade"})
        return done

    def _cancel(self, flow: FlowRow, jobs: Iterable[JobRow], reason: str, *, asks: bool) -> int:
        """Cancel the jobs of one page that have not begun, and ask the others to stop, in one transaction."""
        idle = [job for job in jobs if job.state in _NOT_BEGUN]
        held = [job.id for job in jobs if asks and job.state in HELD and job.cancel_reason is None]
        if not idle and not held:
            return 0
        moves = [Move(job.id, job.tenant, frozenset({job.state}), JobState.CANCELLED, reason) for job in idle]
        with self._store.transaction():
            # Held jobs first: a worker that ends one locks it, and counter rows after that. The move locks counter rows.
            if held:
                self._store.request_cancel(held, tenant=flow.tenant, reason=reason)
            changed = self._store.move(moves, now=self._now()) if moves else frozenset()
        return len(changed) + len(held)

    def _pages(self, flow: FlowRow, reached: UUID | int | None) -> Iterator[tuple[list[JobRow], UUID | int]]:
        """Yield the jobs of a flow in pages, each with the place after which the next one begins."""
        if flow.kind is GroupKind.MAP and "flow" not in flow.rules:  # the map of a durable function
            position = reached if isinstance(reached, int) else -1
            while page := self._store.group_jobs(flow.id, tenant=flow.tenant, after=position, limit=PAGE):
                position = page[-1].details.position or 0
                yield page, position
            return
        inner = flow.kind is GroupKind.MAP
        id, after = _flow_of(flow) if inner else flow.id, reached if isinstance(reached, UUID) else None
        while page := self._store.flow_jobs(id, tenant=flow.tenant, after=after, limit=PAGE):
            after = page[-1].id
            yield [job for job in page if not inner or job.details.group_id == flow.id], after

    def _kept(self, flow: FlowRow, *, handlers: bool) -> set[str]:
        """The ids of nodes that run although the flow stops."""
        kept = set[str]()
        open_rows = [flow]
        while open_rows:
            row = open_rows.pop()
            kept |= {str(id) for id in _listed(row.rules.get("finally"))}
            if handlers:
                kept |= {str(id) for id in _listed(row.rules.get("handlers"))}
            where = FlowFilter(flow.tenant, kinds=frozenset({GroupKind.MAP}), group_id=row.id)
            open_rows += self._store.flows(where, limit=1_000)
        return kept

    def _expire(self, flows: Iterable[FlowRow]) -> int:
        """Cancel the flows among these that have expired. One that neither stops nor is cancelled is here for that reason."""
        now = self._clock.now()
        late = [
            flow
            for flow in flows
            if flow.cancel_reason is None
            and (not flow.stops or (flow.expires_at is not None and flow.expires_at <= now))
        ]
        for flow in late:
            self._store.change_flow(flow.id, tenant=flow.tenant, cancel_reason="expired", now=self._now())
        return len(late)

    def _now(self) -> datetime | None:
        return self._clock.now() if self._pinned else None


def _flow_of(group: FlowRow) -> UUID:
    return UUID(str(group.rules["flow"]))


def _name(job: JobRow) -> str:
    return job.details.node or job.task


def _broken(edge: Edge, job: JobRow | None, group: FlowRow | None) -> str | None:
    """Why an edge did not count, if it did not."""
    if job is not None:
        if job.state in ENDED and not meets(edge.condition, outcome_of(job.state)):
            return f"needs {_name(job)}, which {_ended(node_label(job))}"
    elif (
        group is not None
        and group.ended_at is not None
        and not meets(edge.condition, outcome_of(group.state))
    ):
        return f"needs {group.name}, which {_ended(group.state.value)}"
    return None


def _ended(state: str) -> str:
    word = state.replace("_", " ")
    return word if state in ("failed", "completed", "timed_out") else f"was {word}"


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []
