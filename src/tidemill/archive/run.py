"""One archive run: copies batches of due jobs, verifies the copies, and deletes the originals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tidemill.archive.flows import flow_document
from tidemill.archive.lease import ArchiveLease
from tidemill.archive.places import ArchivePlace, FileCatalogue
from tidemill.archive.sources import JobSource, LiveSource, TierSource
from tidemill.clock import Clock
from tidemill.domain.archive_totals import PolicySums, RunRecord
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import FlowRow
from tidemill.domain.records import AuditEntry
from tidemill.domain.retention import (
    LAST_ID,
    LIVE_TIER,
    ArchivedJob,
    ArchivePolicy,
    Position,
    Selection,
    Selector,
    believed,
)
from tidemill.domain.retention_choice import governed_by, source_store
from tidemill.domain.states import ENDED
from tidemill.errors import StoreBusy, StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.archive")

NAMED = 100
"""Maximum number of ids listed in the audit entry of a batch."""

MOST_MISMATCHES = 3
"""Batches with wrong copies after which a policy ends its run: the place itself is suspect then."""

FLOWS = 20
"""Flows that are looked up at once."""

SETTLED = timedelta(minutes=1)
"""Minimum age of a job that a policy copies and leaves; a job that ended earlier may not be committed yet."""


@dataclass(slots=True)
class PolicyRun:
    """Result of a run for one policy. ``error`` is the code of the error that ended it early."""

    policy: str
    tier: str
    archived: int = 0
    verified: int = 0
    flows: int = 0  #: flows and batches that left with all their jobs
    failed: int = 0  #: copies that differ from what was written; their jobs stay
    changed: int = 0  #: jobs that were reopened during the run; they stay
    bytes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    more: bool = False  #: whether more jobs are due
    took: timedelta = timedelta(0)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """Result of an archive run, in total and by policy; ``more`` is true if due jobs are left."""

    at: datetime
    archived: int
    failed: int
    bytes: int
    more: bool
    took: timedelta
    policies: list[PolicyRun]


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """Jobs that one batch has moved, for events."""

    policy: ArchivePolicy
    at: datetime
    documents: Sequence[ArchivedJob]


class ArchiveRunner:
    """One run: acquires the lease, moves the due jobs, and releases the lease.

    ``place_of`` returns the place with a name of ``App(stores=…)``; the name ``archive`` always has one. ``by`` is the
    actor in the audit log. ``done`` is called after each batch, outside of its transaction. ``pause`` is called between
    two batches with the seconds that the last one took; it returns false to end the run.
    """

    def __init__(
        self,
        jobs: Store,
        place_of: Callable[[str], ArchivePlace],
        clock: Clock,
        *,
        by: str,
        pin: datetime | None = None,
        done: Callable[[ArchivedBatch], None] = lambda _: None,
        pause: Callable[[float], bool] = lambda _: True,
    ) -> None:
        self._jobs, self._place_of, self._clock = jobs, place_of, clock
        self._by, self._pin, self._done, self._pause = by, pin, done, pause
        self._lease = ArchiveLease(jobs, clock, pin)
        self._stopped = False

    def run(self, policies: Sequence[ArchivePolicy], *, limit: int, budget: timedelta) -> ArchiveRun:
        """Move at most ``limit`` jobs, for about ``budget``; a policy that fails does not stop the others."""
        until = self._clock.monotonic() + budget.total_seconds()
        at = self._lease.now()
        self._lease.take()
        self._make_months()
        runs: list[PolicyRun] = []
        errors: list[StoreError] = []
        try:
            for policy in policies:
                run = PolicyRun(policy.name, policy.tier)
                runs.append(run)
                began = self._clock.monotonic()
                try:
                    _PolicyStep(self, policy, policies, run).follow(
                        limit - sum(other.archived for other in runs), until
                    )
                except StoreError as error:
                    _log.warning("archive policy %s was not finished: %s", policy.name, error)
                    errors.append(error)
                    run.error, run.more = error.code, True
                    self._lease.of(policy).errors += 1
                run.took = timedelta(seconds=self._clock.monotonic() - began)
                self._ended(policy, run)
            self._drop_empty_groups(policies)
        finally:
            self._lease.give_back(self._recorded(at, runs))
        if errors and len(errors) == len(runs):
            raise errors[0]
        return ArchiveRun(
            at=at,
            archived=sum(run.archived for run in runs),
            failed=sum(run.failed for run in runs),
            bytes=sum(run.bytes for run in runs),
            more=any(run.more for run in runs),
            took=self._lease.took(),
            policies=runs,
        )

    def _recorded(self, at: datetime, runs: Sequence[PolicyRun]) -> RunRecord:
        return RunRecord(
            at,
            self._lease.took(),
            sum(run.archived for run in runs),
            sum(run.failed for run in runs),
            sum(run.error is not None for run in runs),
            any(run.more for run in runs),
        )

    def _drop_empty_groups(self, policies: Sequence[ArchivePolicy]) -> None:
        """Delete the records of maps outside of flows whose jobs have left one by one."""
        ages = [
            policy.max_age for policy in policies if policy.from_tier is None and policy.max_age is not None
        ]
        try:
            groups = self._jobs.empty_groups(self._lease.now() - max(ages, default=timedelta(0)))
            self._jobs.drop_flows([group.id for group in groups])
        except StoreError as error:
            _log.warning("cannot delete empty groups now: %s", error)

    def _make_months(self) -> None:
        """Make partitions ahead. Without them, documents go to the default partition until a later run moves them."""
        try:
            self._jobs.make_archive_months(now=self._pin)
        except StoreError as error:
            _log.warning("cannot make the partitions of the archive now: %s", error)

    def _ended(self, policy: ArchivePolicy, run: PolicyRun) -> None:
        if run.archived or run.verified or run.failed or run.error:
            self._lease.of(policy).ran(run.took)
        sums = self._lease.sums.get(policy.name)
        if sums is not None and run.verified and not run.failed:
            sums.mismatch_at = None

    def _stop_after(self, seconds: float) -> bool:
        """Pause after a batch that took this long. Returns whether the run was asked to end."""
        self._stopped = self._stopped or not self._pause(seconds)
        return self._stopped


class _Mismatch(Exception):
    """Copies differ from what was written; raised to roll the write back where a transaction allows that."""

    def __init__(self, doubtful: list[ArchivedJob]) -> None:
        super().__init__(len(doubtful))
        self.doubtful = doubtful


class _PolicyStep:
    """One policy of a run: where its jobs come from, where they go, and how far it is."""

    def __init__(
        self, runner: ArchiveRunner, policy: ArchivePolicy, policies: Sequence[ArchivePolicy], run: PolicyRun
    ) -> None:
        self._runner, self._policy, self._run = runner, policy, run
        self._jobs, self._lease, self._clock = runner._jobs, runner._lease, runner._clock
        self._target = None if policy.to is None else runner._place_of(policy.to)
        self._source = self._source_of(policies)
        self._selection = governed_by(policy, policies)
        self._mismatches = 0

    def _source_of(self, policies: Sequence[ArchivePolicy]) -> JobSource:
        tier = self._policy.from_tier
        if tier is None:
            return LiveSource(self._jobs)
        place = self._runner._place_of(source_store(self._policy, policies))
        same = self._target is not None and place.store is not None and place.store is self._target.store
        return TierSource(place, tier, stays=same)

    # The range -------------------------------------------------------------------------------------------------------

    def _until(self) -> Position | None:
        """The last position that is due by age or by count; None if nothing is due."""
        policy, now = self._policy, self._lease.now()
        positions: list[Position] = []
        if policy.max_age is not None:
            positions.append(Position(now - policy.max_age, LAST_ID))
        if policy.max_count is not None:
            beyond = self._source.beyond(replace(self._selection, members=True), policy.max_count)
            positions += [] if beyond is None else [beyond]
        if not policy.delete_from_source:
            settled = Position(now - SETTLED, LAST_ID)
            positions = [min(position, settled) for position in positions]
        return max(positions, default=None)

    def follow(self, room: int, until: float) -> None:
        """Move due jobs batch by batch, the longest ended first."""
        last = self._until()
        if last is None:
            return
        selection = replace(self._selection, until=last)
        self._selection = replace(selection, after=self._copied())
        self._drop_months(last)
        _recover(self._target)
        self._follow_jobs(room, until)
        if self._policy.from_tier is not None:
            self._move_archived_flows(selection)
        elif self._policy.delete_from_source and self._mismatches < MOST_MISMATCHES:
            self._follow_flows(selection, room - self._run.archived, until)

    def _full(self, room: int, until: float) -> bool:
        return room <= 0 or self._clock.monotonic() >= until or self._runner._stopped

    def _follow_jobs(self, room: int, until: float) -> None:
        while True:
            if self._full(room, until):
                self._run.more = self._run.more or bool(self._due(1))
                return
            began = self._clock.monotonic()
            limit = min(self._policy.batch, room)
            due = self._due(limit)
            if not due:
                return
            # (1)
            room -= self._move(due)
            # (5)
            # A job that stays, because its copy is wrong or it was reopened, is not read again in this run.
            self._selection = replace(self._selection, after=due[-1].position)
            if len(due) < limit or self._mismatches >= MOST_MISMATCHES:
                return
            self._runner._stop_after(self._clock.monotonic() - began)

    # Flows -----------------------------------------------------------------------------------------------------------

    def _follow_flows(self, selection: Selection, room: int, until: float) -> None:
        """Move due flows, the longest ended first: the document, then the jobs in pages, then the record of the flow."""
        while True:
            due = self._jobs.due_flows(replace(selection, limit=FLOWS))
            for flow in due:
                if self._full(room, until):
                    self._run.more = True
                    return
                moved, finished = self._move_flow(flow, room, until)
                room -= moved
                if not finished and (self._full(room, until) or self._mismatches >= MOST_MISMATCHES):
                    self._run.more = True
                    return
                assert flow.ended_at is not None
                selection = replace(selection, after=Position(flow.ended_at, flow.id))
            if len(due) < FLOWS:
                return

    def _move_flow(self, flow: FlowRow, room: int, until: float) -> tuple[int, bool]:
        """Move one flow. Returns how many jobs have left, and whether the whole flow has.

        A run that ends in between leaves a document that names all jobs, and the next run continues.
        """
        policy, moved = self._policy, 0
        if self._target is not None:
            document = flow_document(self._jobs, flow, tier=policy.tier, policy=policy.name)
            self._jobs.put_archived_flow(document, now=self._runner._pin)
        after: Position | None = None
        while not self._full(room - moved, until):
            began = self._clock.monotonic()
            limit = min(policy.batch, room - moved)
            page = self._jobs.flow_documents(
                flow.id, policy=policy.name, tier=policy.tier, limit=limit, after=after
            )
            if not page:
                break
            moved += self._move(page)
            if self._mismatches >= MOST_MISMATCHES:
                return moved, False
            after = page[-1].position
            self._runner._stop_after(self._clock.monotonic() - began)
        with self._jobs.transaction():
            finished = bool(self._jobs.drop_flows([flow.id]))
            if finished:
                self._record_flow(flow)
        self._run.flows += finished
        return moved, finished

    def _record_flow(self, flow: FlowRow) -> None:
        policy = self._policy
        after: dict[str, object] = {
            "policy": policy.name,
            "name": flow.name,
            "state": flow.state.value,
            "to": policy.to,
            "tier": None if policy.to is None else policy.tier,
        }
        action = f"{flow.kind.value}.{'purged' if policy.to is None else 'archived'}"
        entry = AuditEntry(self._runner._by, action, f"{flow.kind.value}:{flow.id}", flow.tenant, None, after)
        self._jobs.record([entry], now=self._runner._pin)

    def _move_archived_flows(self, selection: Selection) -> None:
        """Move the documents of flows to the tier of their jobs, or delete them with a policy that deletes."""
        policy = self._policy
        if not policy.delete_from_source or policy.max_age is None:
            return
        tier = None if policy.to is None else policy.tier
        # The end of a flow is not before the ends of its jobs, so its jobs are due first.
        while (
            self._jobs.move_archived_flows(
                replace(selection, limit=policy.batch), tier=tier, policy=policy.name
            )
            >= policy.batch
        ):
            self._lease.renew()

    def _drop_months(self, last: Position) -> None:
        """Drop whole partitions of the tier that a policy without other conditions deletes.

        Only in the store of the jobs: it alone knows which of their documents refer to large values.
        """
        policy = self._policy
        everything = Selector(ENDED)
        if (
            policy.to is not None
            or policy.from_tier is None
            or self._source.store is not self._jobs
            or policy.max_count is not None
            or self._selection.rule != everything
            or self._selection.exclude
        ):
            return
        try:
            dropped = self._jobs.drop_archive_months(policy.from_tier, last.ended_at)
        except StoreBusy as error:
            _log.warning("cannot drop months of the archive now: %s", error)
            return
        if dropped:
            self._run.archived += dropped
            after: dict[str, object] = {"policy": policy.name, "from": policy.from_tier, "done": dropped}
            entry = AuditEntry(self._runner._by, "jobs.purged", "jobs", ALL_TENANTS, None, after)
            self._jobs.record([entry], now=self._runner._pin)

    def _due(self, limit: int) -> list[ArchivedJob]:
        return self._source.due(
            replace(self._selection, limit=limit), policy=self._policy.name, tier=self._policy.tier
        )

    def _copied(self) -> Position | None:
        """How far a policy that leaves the originals has copied in earlier runs."""
        if self._policy.delete_from_source:
            return None
        return self._lease.of(self._policy).position(self._selection)

    # One batch -------------------------------------------------------------------------------------------------------

    def _move(self, due: list[ArchivedJob]) -> int:
        """Copy, verify and delete one batch. Returns how many jobs it moved."""
        try:
            if self._target is not None:
                self._copy(self._target, due)
        except _Mismatch as mismatch:
            self._refuse(mismatch.doubtful)
            return 0
        # (3)
        gone = self._let_go(due)
        # (4)
        if gone:
            self._runner._done(ArchivedBatch(self._policy, self._lease.now(), gone))
        return len(gone)

    def _copy(self, target: ArchivePlace, due: list[ArchivedJob]) -> None:
        """Write the copies and read them back from the place itself.

        A place that replaces its own documents does both in one transaction, so that a wrong copy replaces nothing.
        """
        if isinstance(self._source, TierSource) and self._source.stays and target.store is not None:
            with target.store.transaction():
                self._write(target, due)
        else:
            self._write(target, due)

    def _write(self, target: ArchivePlace, due: list[ArchivedJob]) -> None:
        receipt = target.put(due, now=self._runner._pin)
        # (2)
        _, doubtful = believed(due, target.read(receipt))
        if doubtful:
            raise _Mismatch(doubtful)

    def _refuse(self, doubtful: list[ArchivedJob]) -> None:
        """Count wrong copies, and delete none of the batch."""
        self._mismatches += 1
        self._run.failed += len(doubtful)
        self._run.more = True
        sums = self._lease.of(self._policy)
        sums.failed += len(doubtful)
        sums.mismatch_at = self._lease.now().isoformat()
        self._lease.renew()
        _log.error(
            "archive policy %s: %d copies differ from what was written; their batch was kept; the first is %s",
            self._policy.name,
            len(doubtful),
            doubtful[0].id,
        )

    def _let_go(self, due: list[ArchivedJob]) -> list[ArchivedJob]:
        """Delete the originals of verified copies, and record the totals and an audit entry in one transaction.

        A source outside of the jobs' store is emptied first, under a renewed lease, because it may be slow.
        """
        gone: list[ArchivedJob] = []
        apart = self._source.store is not self._jobs
        if apart:
            self._lease.renew()
            gone = self._drop(due)
        with self._jobs.transaction():
            if not apart:
                gone = self._drop(due)
            sums = self._counted(due, gone)
            self._lease.renew(sums)
            if gone:
                self._record(due, gone)
        self._lease.sums[sums.policy] = sums
        self._run.verified += len(due) if self._target is not None else 0
        self._run.changed += len(due) - len(gone)
        self._run.archived += len(gone)
        self._run.bytes += sum(len(document.document) for document in gone)
        for document in gone:
            self._run.statuses[document.state.value] = self._run.statuses.get(document.state.value, 0) + 1
        return gone

    def _drop(self, due: list[ArchivedJob]) -> list[ArchivedJob]:
        if not self._policy.delete_from_source:
            return due
        ids = self._source.drop(due)
        gone = [document for document in due if document.id in ids]
        if self._target is None:
            self._jobs.release_blobs([document.id for document in gone])
        return gone

    def _counted(self, due: list[ArchivedJob], gone: list[ArchivedJob]) -> PolicySums:
        sums = self._lease.of(self._policy).copy()
        if self._target is not None:
            sums.verified += len(due)
        sums.changed += len(due) - len(gone)
        sums.moved(gone, self._lease.now())
        if not self._policy.delete_from_source:
            sums.copied(self._selection, due[-1].position)
        return sums

    def _record(self, due: list[ArchivedJob], gone: list[ArchivedJob]) -> None:
        policy = self._policy
        after: dict[str, object] = {
            "policy": policy.name,
            "from": policy.from_tier or LIVE_TIER,
            "to": policy.to,
            "tier": None if policy.to is None else policy.tier,
            "done": len(gone),
            "skipped": len(due) - len(gone),
            "ids": [str(document.id) for document in gone[:NAMED]],
        }
        action = "jobs.purged" if policy.to is None else "jobs.archived"
        entry = AuditEntry(self._runner._by, action, "jobs", ALL_TENANTS, None, after)
        self._jobs.record([entry], now=self._runner._pin)


def _recover(place: object) -> None:
    """Let a place of files find what a crashed run wrote, so that its documents are not written twice."""
    if isinstance(place, FileCatalogue):
        place.recover()
