"""An independent account of a store's calls and answers, in plain dictionaries.

It shares no code with any store. After each step it is compared with what the store shows: the safety invariants I1–I8 and I16,
and I17, the sum of stored, archived and deleted jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from tests.conformance.limit_account import LimitAccount

from tidemill.domain.decide import DEFAULT_CRASH_CAP
from tidemill.domain.job import Claim, Execution, Finish, JobRow, Move
from tidemill.domain.record import Keep
from tidemill.domain.states import ENDED, HELD, ExecutionState, JobState

BACK = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING})
"""States that a held job with a cancel request cannot return to."""


class Accounts:
    """The expected state after all calls so far."""

    def __init__(self) -> None:
        self.accepted: set[UUID] = set()
        self.deleted: set[UUID] = set()
        self.forgotten: set[UUID] = set()
        self.tokens: Counter[UUID] = Counter()
        self.holders: dict[UUID, int] = {}
        self.spent: dict[UUID, set[int]] = {}
        self.crashes: Counter[UUID] = Counter()
        self.limits: dict[UUID, int] = {}
        self.last: dict[UUID, JobState] = {}
        self.reopened: set[UUID] = set()
        self.asked: dict[UUID, str] = {}
        self.stopped: dict[UUID, str] = {}
        self.kept_from: dict[UUID, int] = {}
        self.counted = LimitAccount()

    # ----------------------------------------------------------------------------------------- calls and answers

    def accept(self, id: UUID, max_attempts: int, limits: Collection[str]) -> None:
        """Record that a job was stored."""
        assert id not in self.accepted
        self.accepted.add(id)
        self.limits[id] = max_attempts
        self.spent[id] = set()
        self.counted.accept(id, limits)

    def claimed(self, claims: Iterable[Claim]) -> None:
        """Record claims: each has the next token, and none is of a held job (I4, I5)."""
        for claim in claims:
            assert claim.id in self.accepted
            assert claim.id not in self.holders, "claimed while another worker held it"
            self.tokens[claim.id] += 1
            assert claim.token == self.tokens[claim.id]
            self.holders[claim.id] = claim.token
            self.spent[claim.id].add(claim.token)
            assert claim.attempt == len(self.spent[claim.id])

    def lost(self, claims: Iterable[Claim]) -> set[UUID]:
        """Return which of these claims no longer hold (I6)."""
        return {claim.id for claim in claims if self.holders.get(claim.id) != claim.token}

    def finished(self, finishes: Sequence[Finish], lost: Collection[UUID]) -> None:
        """Record a finished batch; exactly the claims without the current token must be lost (I6)."""
        assert set(lost) == self.lost(finish.claim for finish in finishes)
        self.counted.finished([claim.id for claim, *_ in finishes if claim.id not in lost])
        for finish in finishes:
            claim, transition = finish.claim, finish.transition
            if claim.id in lost:
                continue
            if finish.keep is Keep.NOTHING:
                self.deleted.add(claim.id)
            if finish.keep is Keep.LAST:
                self.kept_from[claim.id] = claim.token
            del self.holders[claim.id]
            self.crashes[claim.id] += transition.crashed
            reason = self.asked.pop(claim.id, None)
            if reason is not None and transition.state in BACK:
                self.stopped[claim.id] = reason
            elif transition.execution is ExecutionState.SUSPENDED and transition.state not in ENDED:
                self.spent[claim.id].clear()
                self.crashes[claim.id] = 0
            elif transition.refund and transition.state not in ENDED:
                self.spent[claim.id].remove(claim.token)

    def asked_to_stop(self, ids: Collection[UUID], reason: str) -> None:
        """Record accepted cancel requests; the first reason is kept."""
        for id in ids:
            assert id in self.holders, "a cancel request was accepted for a job that is not held"
            self.asked.setdefault(id, reason)

    def moved(self, moves: Sequence[Move], changed: Collection[UUID]) -> None:
        """Record moved jobs."""
        for move in moves:
            if move.id not in changed:
                continue
            assert move.id not in self.holders, "moved while held"
            if move.state not in ENDED:
                self.reopened.add(move.id)
            if move.restart:
                self.spent[move.id].clear()
                self.crashes[move.id] = 0

    def removed(self, ids: Collection[UUID]) -> None:
        """Record deleted jobs."""
        self.deleted |= set(ids)

    def archived(self, ids: Collection[UUID]) -> None:
        """Record archived jobs whose originals were deleted."""
        assert not set(ids) & set(self.holders)
        self.forgotten |= set(ids)

    # ------------------------------------------------------------------------------------------------- checks

    def check(
        self, jobs: Sequence[JobRow], executions: Sequence[Execution], archive: Collection[UUID]
    ) -> None:
        """Compare the account with everything the store shows."""
        self._present([job.id for job in jobs], archive)
        by_job: dict[UUID, list[Execution]] = {}
        for execution in executions:
            by_job.setdefault(execution.job_id, []).append(execution)
        assert set(by_job) <= {job.id for job in jobs}
        for job in jobs:
            self._state(job)
            self._counted(job)
            self._executed(job, by_job.get(job.id, []))
        keys = Counter(
            (job.tenant, job.unique_key) for job in jobs if job.unique_key and job.state not in ENDED
        )
        assert not [key for key, count in keys.items() if count > 1], "I16: a unique key is held twice"
        self.last = {job.id: job.state for job in jobs}
        self.reopened.clear()
        self.stopped.clear()

    def _present(self, ids: Sequence[UUID], archive: Collection[UUID]) -> None:
        assert len(ids) == len(set(ids)), "I2: a job is listed twice"
        assert set(ids) == self.accepted - self.deleted - self.forgotten, (
            "I1: a job is lost, or was never accepted"
        )
        assert self.forgotten <= set(archive) | self.deleted, "I17: an archived job is lost"

    def _state(self, job: JobRow) -> None:
        before = self.last.get(job.id)
        if before in ENDED and job.id not in self.reopened:
            assert job.state is before, f"I3: {before} became {job.state} without a reopening"
        if job.id in self.stopped:
            assert (job.state, job.reason) == (JobState.CANCELLED, self.stopped[job.id]), (
                "a cancel request is lost"
            )
        assert (job.state in HELD) == (job.id in self.holders), (
            "I5: a held job has no holder, or a claimed job is not held"
        )

    def _counted(self, job: JobRow) -> None:
        assert job.token == self.tokens[job.id], "I4: the token is not the number of claims"
        assert job.attempt <= self.limits[job.id], "I7: too many attempts"
        assert job.crashes <= DEFAULT_CRASH_CAP, "I7: too many crashes"
        assert job.crashes == self.crashes[job.id]
        assert job.attempt == len(self.spent[job.id]), "I8: attempts are not accounted for"

    def _executed(self, job: JobRow, executions: Sequence[Execution]) -> None:
        numbers = [execution.number for execution in executions]
        first = self.kept_from.get(job.id, 1)
        assert numbers == [*range(first, job.token + 1)], (
            "I4: executions are missing, duplicated or out of order"
        )
        spent = {number for number in self.spent[job.id] if number >= first}
        assert spent <= set(numbers), "I8: an attempt has no execution"
        running = [execution for execution in executions if execution.state is ExecutionState.RUNNING]
        assert [execution.number for execution in running] == ([job.token] if job.state in HELD else [])
        for execution in executions:
            assert (execution.finished_at is None) == (execution.state is ExecutionState.RUNNING)
