"""The history of a simulation, kept outside the store, and its invariants.

It shares no code with any store. Each violation is recorded by its number (I1 to I16) and a text. Nothing is raised, because the
history is updated inside calls of the engine, which would treat an exception as a store error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.simulation.simulator import Simulator, StoreClock

from tidemill.domain.cluster import Lease, Pulse, Worker
from tidemill.domain.decide import DEFAULT_CRASH_CAP
from tidemill.domain.job import Claim, Enqueued, Finish, Move, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.schedules import Fired
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.domain.worker_reports import WorkerReport
from tidemill.stores.base import StepResult
from tidemill.stores.requests import NO_REPORTS

LINGERS = 45.0
"""Seconds for which a worker may be behind after a pause: the longest pause and its lease."""

BACK = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING})
"""States that a held job with a cancel request cannot return to."""


_NAMED = frozenset({"register", "beat"})
"""Verbs whose keyword arguments matter."""

LATE = 2.0
"""Seconds after the end of a lease in which a claim in flight may still arrive."""


def short(id: UUID | None) -> str:
    """Return an id as the trace shows it."""
    return "-" if id is None else f"#{id.int & 0xFFFF}"


@dataclass(slots=True)
class Account:
    """The history of one job."""

    new: NewJob
    due_at: datetime
    token: int = 0
    holder: UUID | None = None
    spent: int = 0  #: attempts that were not refunded
    crashes: int = 0
    state: JobState = JobState.PENDING
    reopened: int = 0
    failures: int = 0  #: executions that did not complete the job
    stopping: bool = False  #: a cancel was requested while it was held


@dataclass(slots=True)
class Effect:
    """A run of a handler."""

    id: UUID
    token: int
    worker: UUID
    began: float
    ended: float | None = None


class History:
    """The accounts of all jobs, fires, leases and handlers."""

    def __init__(
        self, simulator: Simulator, limits: Mapping[str, int], clock: StoreClock | None = None
    ) -> None:
        self._simulator, self._limits = simulator, limits
        self.clock = clock or StoreClock(simulator.clock)
        self.violations: list[str] = []
        self.accounts: dict[UUID, Account] = {}
        self.effects: list[Effect] = []
        self.disturbed: dict[
            UUID, list[float]
        ] = {}  #: times at which a worker was paused, disconnected or slow
        self.fires: dict[tuple[UUID, datetime], UUID] = {}
        self.noted: set[tuple[UUID, datetime]] = set()
        self._leaders: dict[int, UUID | None] = {}
        self._seen: dict[str, Callable[..., None]] = {
            "enqueue": self._enqueued,
            "claim": self._claim_answered,
            "step": self._stepped,
            "finish": self._finished,
            "start": self._started,
            "move": self._moved,
            "request_cancel": self._cancel_requested,
            "acquire": self._acquired,
            "note_fires": self._noted,
            "register": self._registered,
            "beat": self._heartbeat,
        }
        self._leased_until: dict[UUID, float] = {}  # in simulated seconds, which are never stepped
        self._rewound: set[UUID] = set()  # jobs whose last changes were rewound

    def record(self, verb: str, given: Sequence[Any], named: Mapping[str, Any], answer: Any) -> None:
        """Record a call of the store and its answer."""
        observer = self._seen.get(verb)
        if observer is not None:
            observer(*given, answer=answer, **named) if verb in _NAMED else observer(*given, answer=answer)
        else:
            self._simulator.say(verb)

    def broken(self, promise: str, words: str) -> None:
        """Record a violation."""
        self._simulator.say(f"BROKEN {promise}: {words}")
        self.violations.append(f"{promise}: {words}")

    # Jobs ----------------------------------------------------------------------------------------------------------------

    def _enqueued(self, jobs: Sequence[NewJob], *, answer: Sequence[Enqueued]) -> None:
        now = self.clock.now()
        for job, made in zip(jobs, answer, strict=True):
            self._simulator.say(f"enqueue {short(job.id)} {'' if made.created else f'is {short(made.id)}'}")
            if not made.created:
                continue
            if job.id in self.accounts:
                self.broken("I1", f"{short(job.id)} was accepted twice")
            due = job.run_at or (now if job.delay is None else now + job.delay)
            account = self.accounts[job.id] = Account(job, due)
            if job.waiting is not None:
                account.state = JobState.WAITING
            self._unique(job)
            if job.details.schedule_id is not None and job.details.fire_at is not None:
                fire = (job.details.schedule_id, job.details.fire_at)
                if fire in self.fires:
                    self.broken("I12", f"the fire of {fire[1]:%H:%M:%S} created two jobs")
                self.fires[fire] = job.id

    def _unique(self, job: NewJob) -> None:
        if job.unique is None:
            return
        for id, other in self.accounts.items():
            same = other.new.unique is not None and other.new.unique.key == job.unique.key
            if id != job.id and same and other.state not in ENDED:
                self.broken("I16", f"{short(job.id)} and {short(id)} hold the key {job.unique.key}")

    def confirm(self, ids: Iterable[UUID]) -> None:
        """Record that a producer was notified that these jobs are stored."""
        for id in ids:
            if id not in self.accounts and id not in self._rewound:
                self.broken("I1", f"{short(id)} was never stored, but its producer was notified that it was")

    def _claim_answered(self, request: ClaimRequest, *, answer: Sequence[Claim]) -> None:
        for claim in answer:
            self._claimed(request.worker, claim)

    def _claimed(self, worker: UUID, claim: Claim) -> None:
        self._simulator.say(f"claim {short(claim.id)} token {claim.token} attempt {claim.attempt}")
        account = self.accounts.get(claim.id)
        if account is None:
            self.broken("I1", f"{short(claim.id)} was claimed but never accepted")
            return
        if account.holder is not None:
            self.broken("I5", f"{short(claim.id)} was claimed while {short(account.holder)} held it")
        if account.state in ENDED:
            self.broken("I3", f"{short(claim.id)} was claimed after it was {account.state}")
        if self._simulator.seconds > self._leased_until.get(worker, 0.0) + LATE:
            self.broken("I25", f"{short(worker)} claimed {short(claim.id)} without a lease")
        if self.clock.now() < account.due_at:
            self.broken("I14", f"{short(claim.id)} was claimed before {account.due_at:%H:%M:%S.%f}")
        account.token += 1
        account.spent += 1
        account.holder, account.state = worker, JobState.RUNNING
        if claim.token != account.token:
            self.broken("I4", f"{short(claim.id)} has token {claim.token} at claim {account.token}")
        if claim.attempt != account.spent:
            self.broken("I8", f"{short(claim.id)} is attempt {claim.attempt}, expected {account.spent}")
        if account.spent > account.new.max_attempts:
            self.broken("I7", f"{short(claim.id)} was attempted {account.spent} times")
        self._within_limits(account.new.limits)

    def _within_limits(self, names: Collection[str]) -> None:
        for name in names:
            held = sum(
                account.holder is not None and name in account.new.limits
                for account in self.accounts.values()
            )
            if held > self._limits[name]:
                self.broken("I11", f"{held} jobs of {name} are held at once")

    def _stepped(self, finishes: Sequence[Finish], request: ClaimRequest, *, answer: StepResult) -> None:
        self._finished(finishes, answer=answer.lost)
        self._claim_answered(request, answer=answer.claims)

    def _finished(self, finishes: Sequence[Finish], *, answer: Collection[UUID]) -> None:
        for finish in finishes:
            claim, change = finish.claim, finish.transition
            lost = claim.id in answer
            self._simulator.say(
                f"finish {short(claim.id)} token {claim.token} {change.state}{' LOST' if lost else ''}"
            )
            account = self._account_of(claim.id, lost=lost)
            if account is None:
                continue
            holds = account.holder is not None and (account.token, account.holder) == (
                claim.token,
                claim.worker,
            )
            if holds == lost:
                holder = f"{short(account.holder)} holds it with token {account.token}"
                word = "was refused" if lost else f"wrote for {short(claim.worker)}, but {holder}"
                self.broken("I6", f"token {claim.token} of {short(claim.id)} {word}")
            if lost:
                continue
            if account.state in ENDED:
                self.broken("I2", f"{short(claim.id)} ended twice")
            stops, account.stopping = account.stopping and change.state in BACK, False
            account.holder, account.state = None, JobState.CANCELLED if stops else change.state
            account.crashes += change.crashed
            account.failures += change.state is not JobState.COMPLETED
            if change.execution is ExecutionState.SUSPENDED and account.state not in ENDED:
                account.spent = account.crashes = 0
            elif change.refund and account.state not in ENDED:
                account.spent -= 1
            account.due_at = self.clock.now() + change.delay

    def _account_of(self, id: UUID, *, lost: bool) -> Account | None:
        """Return the account of a held job; None for a job that the store has lost, which no worker can write."""
        account = self.accounts.get(id)
        if account is None and not lost:
            self.broken("I6", f"a worker wrote {short(id)}, which the store has lost")
        return account

    def _started(self, claims: Sequence[Claim], *, answer: Collection[UUID]) -> None:
        for claim in claims:
            lost = claim.id in answer
            self._simulator.say(f"start {short(claim.id)} token {claim.token}{' LOST' if lost else ''}")
            account = self._account_of(claim.id, lost=lost)
            if account is None:
                continue
            if lost == ((account.token, account.holder) == (claim.token, claim.worker)):
                self.broken(
                    "I6", f"token {claim.token} of {short(claim.id)} got the wrong answer at its start"
                )

    def _cancel_requested(self, ids: Collection[UUID], *, answer: Collection[UUID]) -> None:
        for id in sorted(answer):
            self._simulator.say(f"request_cancel {short(id)}")
            if self.accounts[id].holder is None:
                self.broken("I5", f"{short(id)} got a cancel request but is not held")
            self.accounts[id].stopping = True

    def _moved(self, moves: Sequence[Move], *, answer: Collection[UUID]) -> None:
        for move in moves:
            if move.id not in answer:
                continue
            self._simulator.say(f"move {short(move.id)} to {move.state}")
            account = self.accounts[move.id]
            if account.holder is not None:
                self.broken("I5", f"{short(move.id)} was moved while it was held")
            if account.state in ENDED:
                account.reopened += 1
            account.state, account.due_at = move.state, self.clock.now() + move.delay
            if move.restart:
                account.spent = account.crashes = 0

    # Leases, the store's clock, and rewinds --------------------------------------------------------------------------------

    def _registered(self, worker: Worker, *, lease: timedelta, answer: object) -> None:
        self._leased_until[worker.id] = self._simulator.seconds + lease.total_seconds()

    def _heartbeat(
        self,
        ids: Collection[UUID],
        *,
        lease: timedelta,
        answer: Pulse,
        reports: Mapping[UUID, WorkerReport] = NO_REPORTS,
    ) -> None:
        for id in answer.alive:
            self._leased_until[id] = self._simulator.seconds + lease.total_seconds()

    def step_clock(self, offset: timedelta) -> None:
        """Step the store's clock; jobs that are due by then stay due."""
        self._simulator.say(f"the store's clock is off by {offset.total_seconds():+g} s")
        now, back = self.clock.now(), offset < self.clock.offset
        for account in self.accounts.values():
            if account.due_at <= now:
                account.due_at = datetime.min.replace(tzinfo=UTC)
        # By the store's clock, older leases now last longer.
        if back:
            self._leased_until = dict.fromkeys(self._leased_until, float("inf"))
        self.clock.step_to(offset)

    def snapshot(self) -> Callable[[], None]:
        """Save the current state; the returned function restores it, as a rewound store does."""
        accounts = {id: replace(account) for id, account in self.accounts.items()}
        leaders, fires, noted = dict(self._leaders), dict(self.fires), set(self.noted)

        def rewind() -> None:
            changed = {id for id, account in self.accounts.items() if accounts.get(id) != account}
            self._simulator.say(f"the store goes back in time: {len(changed)} jobs had changed since then")
            self._rewound |= changed
            self.accounts = {id: replace(account) for id, account in accounts.items()}
            self._leaders, self.fires, self.noted = dict(leaders), dict(fires), set(noted)

        return rewind

    # Leaders and fires ---------------------------------------------------------------------------------------------------

    def _acquired(self, name: str, holder: UUID, *, answer: Lease | None) -> None:
        if answer is None:
            return
        self._simulator.say(f"{short(holder)} leads, term {answer.term}")
        last = max(self._leaders, default=0)
        if self._leaders.setdefault(answer.term, holder) != holder:
            self.broken("I15", f"term {answer.term} of {name} has two holders")
        if answer.term < last or answer.term > last + 1:
            self.broken("I15", f"term {answer.term} of {name} follows {last}")

    def _noted(self, fires: Sequence[Fired], *, answer: Collection[Any]) -> None:
        for fire in fires:
            self._simulator.say(f"fire {fire.fire_at:%H:%M:%S} {short(fire.job_id)} {fire.reason or ''}")
            self.noted.add((fire.schedule_id, fire.fire_at))

    # Handlers ------------------------------------------------------------------------------------------------------------

    def began(self, claim: Claim, worker: UUID) -> Effect:
        """Record that a handler begins."""
        self._simulator.say(f"run {short(claim.id)} token {claim.token}")
        effect = Effect(claim.id, claim.token, worker, self._simulator.seconds)
        for other in self.effects:
            if other.id == claim.id and other.token == claim.token and claim.id not in self._rewound:
                self.broken("I9", f"{short(claim.id)} is run twice with token {claim.token}")
            if other.id == claim.id and other.ended is None:
                # The handler that should have stopped or not begun; a rewound store issues a token twice.
                stale = min(effect, other, key=lambda run: (run.token, run.began))
                if not self._was_disturbed(stale):
                    words = f"runs twice, but {short(stale.worker)} was not disturbed"
                    self.broken("I10", f"{short(claim.id)} {words}")
        account = self.accounts.get(claim.id)
        mine = account is not None and account.holder == worker and account.token == claim.token
        if not mine and not self._was_disturbed(effect):
            self.broken("I10", f"{short(claim.id)} is run by {short(worker)}, which does not hold it")
        self.effects.append(effect)
        return effect

    def was_rewound(self, ids: Collection[UUID]) -> bool:
        """Whether the store lost changes of all these jobs when it went back in time."""
        return self._rewound.issuperset(ids)

    def ended(self, effect: Effect) -> None:
        """Record that a handler ended or was stopped."""
        if effect.ended is None:
            effect.ended = self._simulator.seconds

    def disturb(self, worker: UUID) -> None:
        """Record that a worker is paused, disconnected or slow."""
        self.disturbed.setdefault(worker, []).append(self._simulator.seconds)

    def _was_disturbed(self, effect: Effect) -> bool:
        return any(at >= effect.began - LINGERS for at in self.disturbed.get(effect.worker, ()))

    # The end -------------------------------------------------------------------------------------------------------------

    @property
    def ended_all(self) -> bool:
        """Return whether every accepted job has ended."""
        return all(account.state in ENDED for account in self.accounts.values())

    def check_effects(self) -> None:
        """Check that every run of a handler has a claim (I9), and that every completed job ran."""
        ran = Counter(effect.id for effect in self.effects)
        for id, account in self.accounts.items():
            if ran[id] > account.token and id not in self._rewound:
                self.broken("I9", f"{short(id)} ran {ran[id]} times with {account.token} claims")
            if account.state is JobState.COMPLETED and not ran[id]:
                self.broken("I9", f"{short(id)} is completed but never ran")
            # One crash in company makes a job a suspect; the others happen alone.
            if account.crashes > DEFAULT_CRASH_CAP + 1:
                self.broken("I7", f"{short(id)} was in {account.crashes} crashes")
