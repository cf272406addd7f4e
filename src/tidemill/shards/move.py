"""The live move of a tenant to another shard, in steps that a later call continues after an interruption.

The placement says how far a move is. ``moving``: the source is still the tenant's shard, and the move may be cancelled.
``draining``: new jobs go to the target, where the tenant is paused. Then definitions, schedules and jobs that have not begun are
carried; jobs that have begun end in the source. When the source has no unfinished job, the pause ends and the tenant is
``placed``. So jobs of a tenant never run in two shards at the same time, and no concurrency limit or overlap rule is exceeded.
Before that, the target counts the tenant's latest starts, so that no rate is exceeded either.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.graph import FlowFilter, FlowState
from tidemill.domain.job import JobRow, Move
from tidemill.domain.limits import enforced, is_rate, memory_of
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.schedules import Advance, ScheduleRow
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.domain.tenant_placement import PlacementState, TenantPlacement
from tidemill.domain.triggers.reactive import sources_of
from tidemill.errors import StoreError, StoreUnavailable, TenantMoving, UsageError
from tidemill.shards.map import FRESH, ShardMap
from tidemill.stores.base import Lock, Store

_log = logging.getLogger("tidemill.client")

LOT = 1_000
"""Maximum number of jobs that are carried together."""

SETTLED = FRESH + 2.0
"""Seconds after which all clients use a changed placement, and all workers know a new pause."""

_LOOK = 0.5  # seconds between two looks at jobs that end in the source
_MARK = "moving to another shard"  # the note of a schedule whose fires have stopped in the source
_HOLDER = "tidemill"  # the author of the pause in the target
_FIRES = 10  # recent fires of a schedule that its overlap rule may examine
_WAITING = frozenset({JobState.WAITING})


class MoveProgress(NamedTuple):
    """How far the move of a tenant is."""

    placement: TenantPlacement
    schedules: int  #: carried by this call
    carried: int  #: jobs carried by this call
    left: int  #: unfinished jobs in the source


Report = Callable[[MoveProgress], object]


class TenantMove:
    """Moves one tenant from its shard to another one. ``stores`` are those of the app."""

    def __init__(self, map: ShardMap, stores: Mapping[str, Store], tenant: str) -> None:  # noqa: A002  (what it is)
        self._map, self._stores, self._tenant = map, stores, tenant
        self._home = stores[map.home]
        self._schedules = self._carried = 0

    # Calls -------------------------------------------------------------------------------------------------------------

    def begin(self, target: str) -> tuple[TenantPlacement, bool]:
        """Record the start of the move; return its placement, and whether it has begun now."""
        self._map.check(target)
        if not self._home.placed([self._tenant]) and self._map.has_rows(self._tenant):
            self._map.placement(self._tenant)  # from before the app had shards
        row = self._row()
        if row.state is not PlacementState.PLACED:
            towards = row.target if row.state is PlacementState.MOVING else row.shard
            if towards == target:
                return row, False
            raise TenantMoving(
                f"tenant {self._tenant!r} is moving to the shard {towards!r}; let that move end first",
                tenant=self._tenant,
                shard=towards,
            )
        if row.shard == target:
            raise UsageError(
                f"tenant {self._tenant!r} is in the shard {target!r} already", tenant=self._tenant
            )
        if self._stores[row.shard] is self._stores[target]:
            raise UsageError(
                f"the shards {row.shard!r} and {target!r} are the same store",
                tenant=self._tenant,
                shard=target,
            )
        self._refuse_unmovable(row.shard)
        self._stores[target].check()
        return self._write(replace(row, state=PlacementState.MOVING, target=target)), True

    def cancel(self) -> TenantPlacement:
        """Take back a move before its switch."""
        with self._alone():
            row = self._row()
            if row.state is PlacementState.PLACED:
                raise UsageError(f"tenant {self._tenant!r} is not moving", tenant=self._tenant)
            if row.state is PlacementState.DRAINING:
                raise TenantMoving(
                    f"new jobs of tenant {self._tenant!r} go to the shard {row.shard!r} already, so its move can only be"
                    " continued; move it back afterwards",
                    tenant=self._tenant,
                    shard=row.shard,
                )
            assert row.target is not None
            target = self._stores[row.target]
            self._forget_definitions(target)
            self._release(target, self._stores[row.shard])
            return self._write(replace(row, state=PlacementState.PLACED, target=None))

    def run(self, target: str, report: Report | None = None) -> TenantPlacement:
        """Continue the move to its end; return the placement."""
        with self._alone() as lock:
            row = self._row()
            towards = row.target if row.state is PlacementState.MOVING else row.shard
            if towards != target:
                raise TenantMoving(
                    f"tenant {self._tenant!r} has begun another move in the meantime", tenant=self._tenant
                )
            if row.state is PlacementState.MOVING:
                row = self._switch(row)
            if row.state is PlacementState.DRAINING:
                row = self._drain(row, lock, report)
            return row

    # The placement -----------------------------------------------------------------------------------------------------

    def _row(self) -> TenantPlacement:
        if self._map.is_own(self._tenant):
            raise UsageError(
                f"tenant {self._tenant!r} is the app's own, which stays in the store {self._map.home!r}",
                tenant=self._tenant,
            )
        row = next(iter(self._home.placed([self._tenant])), None)
        if row is None:
            raise UsageError(
                f"tenant {self._tenant!r} has no shard to leave; place it: tidemill shards place",
                tenant=self._tenant,
            )
        return row

    def _write(self, row: TenantPlacement) -> TenantPlacement:
        """Write a placement over the epoch that was read, with a copy in both shards."""
        if not self._home.replace([row]):
            raise TenantMoving(
                f"the placement of tenant {self._tenant!r} was changed by another process",
                tenant=self._tenant,
            )
        self._map.forget(self._tenant)
        written = self._row()
        for name in {row.shard, row.target} - {None, self._map.home}:
            assert name is not None
            with suppress(StoreError):  # a copy only helps while the home store is away
                self._stores[name].copy_placements([written])
        return written

    @contextmanager
    def _alone(self) -> Iterator[Lock]:
        """Refuse a second process that moves the same tenant."""
        lock = self._home.hold(f"move:{self._tenant}")
        if lock is None:
            raise TenantMoving(f"another process is moving tenant {self._tenant!r}", tenant=self._tenant)
        try:
            yield lock
        finally:
            lock.release()

    def _wait(self, row: TenantPlacement) -> None:
        """Wait until every client uses this placement."""
        assert row.changed_at is not None
        passed = (self._home.now() - row.changed_at).total_seconds()
        # A clock that was set back makes the wait longer, never shorter.
        time.sleep(max(SETTLED - max(passed, 0.0), 0.0))

    def _refuse_unmovable(self, name: str) -> None:
        """Refuse a tenant with something that needs one store from beginning to end."""
        source = self._stores[name]
        flows = source.flows(FlowFilter(self._tenant, states=frozenset({FlowState.RUNNING})), limit=1)
        if flows:
            self._refuse("has flows or batches that have not ended; let them end, or cancel them")
        parked = frozenset({JobState.WAITING, JobState.REVIEW_NEEDED})
        if source.jobs(JobFilter(self._tenant, states=parked), limit=1).items:
            self._refuse("has suspended jobs, or jobs that need a review; let them end, or cancel them")
        reacting = [row.key for row in source.schedules(tenant=self._tenant) if sources_of(row.trigger)]
        if reacting:
            self._refuse(
                f"has schedules that react to events or to ends of jobs ({', '.join(reacting[:5])});"
                " delete them, and create them again after the move"
            )

    def _refuse(self, why: str) -> None:
        raise UsageError(f"tenant {self._tenant!r} {why}", tenant=self._tenant)

    # The switch --------------------------------------------------------------------------------------------------------

    def _switch(self, row: TenantPlacement) -> TenantPlacement:
        """Prepare the target, then send new jobs there."""
        assert row.target is not None
        source, target = self._stores[row.shard], self._stores[row.target]
        self._hold(target)
        self._copy_definitions(source, target)
        target.put_error_marks(source.error_marks(tenant=self._tenant))
        self._wait(row)  # workers of the target know the pause before the first job comes
        former = (row.shard, *(name for name in row.former if name not in (row.shard, row.target)))
        return self._write(
            replace(row, shard=row.target, state=PlacementState.DRAINING, target=row.shard, former=former)
        )

    def _hold(self, target: Store) -> None:
        """Pause the tenant in the target; a pause that exists already serves as well."""
        if target.pause([Pause(PauseKind.TENANT, self._tenant, _MARK, _HOLDER)]):
            target.notify(["change"])

    def _release(self, target: Store, source: Store) -> None:
        """End the pause in the target, unless a person has paused the tenant."""
        of_tenant = PauseKind.TENANT, self._tenant
        wanted = [
            pause
            for pause in source.pauses()
            if (pause.kind, pause.name) == of_tenant and pause.paused_by != _HOLDER
        ]
        with target.transaction():
            ours = [
                pause
                for pause in target.pauses()
                if (pause.kind, pause.name) == of_tenant and pause.paused_by == _HOLDER
            ]
            if ours:
                target.resume([of_tenant])
                target.pause(wanted)
        target.notify(["change"])

    # Draining ----------------------------------------------------------------------------------------------------------

    def _drain(self, row: TenantPlacement, lock: Lock, report: Report | None) -> TenantPlacement:
        assert row.target is not None
        source, target = self._stores[row.target], self._stores[row.shard]
        self._hold(target)
        self._wait(row)
        reason = f"moving from shard {row.target}"
        self._recover(source, target, reason)
        while True:
            if not lock.held():
                raise StoreUnavailable(
                    "the home store has lost the lock of this move; continue it", tenant=self._tenant
                )
            self._copy_definitions(source, target)
            self._carry_schedules(source, target)
            carried = self._carry_lot(source, target, reason)
            left = sum(source.count(JobFilter(self._tenant, states=LIVE)).values())
            if report is not None:
                report(MoveProgress(row, self._schedules, self._carried, left))
            if not left and not carried:
                break
            if not carried:
                time.sleep(_LOOK)
        self._carry_starts(source, target)
        self._forget_definitions(source)
        self._release(target, source)
        return self._write(replace(row, state=PlacementState.PLACED, target=None))

    def _carry_starts(self, source: Store, target: Store) -> None:
        """Count the tenant's latest starts in the target. The source has no unfinished job, so none is added to them."""
        # The target may have no worker yet that has declared the rules of the tenant's tasks.
        rules = {rule.name: enforced(rule) for rule in [*source.rules(), *target.rules()]}
        rates = [rule for rule in rules.values() if is_rate(rule)]
        if not rates:
            return
        since = source.now() - memory_of(rates, timedelta(0))
        target.receive_starts(source.outgoing_starts(self._tenant, since=since), rules)

    def _copy_definitions(self, source: Store, target: Store) -> None:
        """Write the versions of definitions that the target lacks, under the same numbers."""
        stored = {row.id: row for row in target.definitions(tenant=self._tenant, deleted=True)}
        for definition in source.definitions(tenant=self._tenant):
            before = stored.get(definition.id)
            for version in source.definition_versions(definition.id, tenant=self._tenant):
                old = version.definition
                if before is None or old.version > before.version:
                    target.put_definition(
                        replace(old, version=old.version - 1, enabled=definition.enabled),
                        by=version.created_by,
                        now=version.created_at,
                    )
            if before is not None and before.enabled != definition.enabled:
                target.enable_definitions([definition.id], tenant=self._tenant, enabled=definition.enabled)

    def _forget_definitions(self, store: Store) -> None:
        rows = store.definitions(tenant=self._tenant, deleted=True)
        store.forget_definitions([row.id for row in rows], tenant=self._tenant)

    def _carry_schedules(self, source: Store, target: Store) -> None:
        """Stop each schedule in the source, write it in the target from its last fire on, and delete it in the source."""
        arrived = {row.id for row in target.schedules(tenant=self._tenant)}
        for row in source.schedules(tenant=self._tenant):
            if row.id not in arrived:
                stopped = self._stop(source, row)
                if stopped is None:
                    continue  # changed by a person at this moment; the next round carries it
                fires = source.fires(row.id, tenant=self._tenant, limit=_FIRES)
                with target.transaction():
                    for fire in fires:
                        target.note_fires([fire], now=fire.created_at)
                    self._start(target, stopped)
            source.drop_schedules([row.id], tenant=self._tenant)
            self._schedules += 1

    def _stop(self, source: Store, row: ScheduleRow) -> ScheduleRow | None:
        """Let a schedule fire no more in the source; return it with the position of its last fire."""
        if row.enabled:
            stopped = replace(row, enabled=False, note=_MARK)
            if source.put_schedules([stopped], now=row.since_at):
                return None
            (row,) = source.schedules(tenant=self._tenant, ids=[row.id]) or [stopped]
        return replace(row, enabled=True, note=None) if row.note == _MARK else row

    def _start(self, target: Store, row: ScheduleRow) -> None:
        """Write a schedule that counts from its last fire. It keeps the key that it had, unless a new one has taken it."""
        counts_from = max(filter(None, (row.since_at, row.last_fire_at)), default=None)
        fresh = replace(row, revision=0, enabled=True, note=None)
        if target.put_schedules([fresh], now=counts_from):
            _log.warning(
                "schedule %s of %s exists in the new shard already; its old one ends", row.key, row.tenant
            )
            return
        target.advance([Advance(row.id, 1, None, row.last_fire_at, row.next_fire_at)])
        if not row.enabled:
            target.put_schedules([replace(row, revision=1)], now=counts_from)

    # Jobs --------------------------------------------------------------------------------------------------------------

    def _recover(self, source: Store, target: Store, reason: str) -> None:
        """Settle the copies of a call that was interrupted."""
        after: str | None = None
        while True:
            page = target.jobs(
                JobFilter(self._tenant, states=_WAITING), sort=Sort.OLDEST, limit=LOT, after=after
            )
            self._settle(source, target, [job for job in page.items if job.reason == reason], reason)
            if page.next is None:
                return
            after = page.next

    def _carry_lot(self, source: Store, target: Store, reason: str) -> int:
        """Carry jobs that have not begun; return how many."""
        lot = source.outgoing(self._tenant, limit=LOT)
        if not lot:
            return 0
        target.receive(lot, reason=reason)
        source.withdraw([item.job for item in lot], tenant=self._tenant)
        ids = [item.job.id for item in lot]
        copies = {job.id: job for job in target.get(ids, tenant=self._tenant)}
        return self._settle(source, target, [copies[id] for id in ids if id in copies], reason)

    def _settle(self, source: Store, target: Store, copies: Iterable[JobRow], reason: str) -> int:
        """Release the copies of jobs that have left the source, and delete those of jobs that are still there."""
        rows = list(copies)
        if not rows:
            return 0
        staying = {job.id for job in source.get([row.id for row in rows], tenant=self._tenant)}
        back = [row for row in rows if row.id in staying]
        if back:
            self._discard(target, back, reason)
        now = target.now()
        moves = [_released(row, row.run_at - now, self._tenant) for row in rows if row.id not in staying]
        released = target.move(moves, now=now)
        target.notify(["change"])
        self._carried += len(released)
        return len(released)

    def _discard(self, target: Store, rows: list[JobRow], reason: str) -> None:
        """Delete copies whose job a worker has claimed, or a person has changed, in the source."""
        ids: set[UUID] = {row.id for row in rows}
        target.withdraw(rows, tenant=self._tenant, reason=reason)
        ended = [job.id for job in target.get(ids, tenant=self._tenant) if job.state in ENDED]
        target.delete(ended, tenant=self._tenant)


def _released(row: JobRow, delay: timedelta, tenant: str) -> Move:
    state = JobState.SCHEDULED if delay > timedelta(0) else JobState.PENDING
    return Move(row.id, tenant, _WAITING, state, delay=delay)
