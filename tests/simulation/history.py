"""What happened, in the order it happened, kept outside of the store; and the promises that must hold at every step of it.

It shares no code with any store. Each broken promise is written down by its number (I1 to I16) and words; nothing is raised,
because what is told here is told in the midst of the product's own code, which would take it for trouble of the store's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.simulation.stage import START, Stage

from tidemill.domain.cluster import Lease
from tidemill.domain.decide import DEFAULT_CRASH_CAP
from tidemill.domain.job import Claim, Enqueued, Finish, Move, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.timetable import Fired
from tidemill.stores.base import Step

LINGERS = 45.0
"""Seconds for which a worker may be behind after it was held up: the longest pause, and its lease."""

BACK = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING})
"""Where no job goes that was asked to stop while it was held."""


def short(id: UUID | None) -> str:
    """An id as the trace shows it."""
    return "-" if id is None else f"#{id.int & 0xFFFF}"


@dataclass(slots=True)
class Account:
    """What is known of one job."""

    new: NewJob
    due_at: datetime
    token: int = 0
    holder: UUID | None = None
    spent: int = 0  #: attempts that were not given back
    crashes: int = 0
    state: JobState = JobState.PENDING
    reopened: int = 0
    failures: int = 0  #: executions that did not complete it
    stopping: bool = False  #: somebody asked for it to stop while it was held


@dataclass(slots=True)
class Effect:
    """A handler at work."""

    id: UUID
    token: int
    worker: UUID
    began: float
    ended: float | None = None


class History:
    """The accounts of all jobs, fires, leases and handlers."""

    def __init__(self, stage: Stage, limits: Mapping[str, int]) -> None:
        self._stage, self._limits = stage, limits
        self.violations: list[str] = []
        self.accounts: dict[UUID, Account] = {}
        self.effects: list[Effect] = []
        self.disturbed: dict[UUID, list[float]] = {}  #: when a worker was held up, cut off or slow
        self.fires: dict[tuple[UUID, datetime], UUID] = {}
        self.noted: set[tuple[UUID, datetime]] = set()
        self._leaders: dict[int, UUID | None] = {}
        self._seen: dict[str, Callable[..., None]] = {
            "enqueue": self._enqueued,
            "claim": self._asked,
            "step": self._stepped,
            "finish": self._finished,
            "start": self._started,
            "move": self._moved,
            "request_cancel": self._told_to_stop,
            "acquire": self._acquired,
            "note_fires": self._noted,
        }

    def saw(self, verb: str, given: Sequence[Any], named: Mapping[str, Any], answer: Any) -> None:
        """The store did this, and answered so."""
        told = self._seen.get(verb)
        if told is not None:
            told(*given, answer=answer)
        else:
            self._stage.say(verb)

    def broken(self, promise: str, words: str) -> None:
        """A promise does not hold."""
        self._stage.say(f"BROKEN {promise}: {words}")
        self.violations.append(f"{promise}: {words}")

    # Jobs ----------------------------------------------------------------------------------------------------------------

    def _enqueued(self, jobs: Sequence[NewJob], *, answer: Sequence[Enqueued]) -> None:
        now = self._stage.clock.now()
        for job, made in zip(jobs, answer, strict=True):
            self._stage.say(f"enqueue {short(job.id)} {'' if made.created else f'is {short(made.id)}'}")
            if not made.created:
                continue
            if job.id in self.accounts:
                self.broken("I1", f"{short(job.id)} was accepted twice")
            due = job.run_at or (now if job.delay is None else now + job.delay)
            account = self.accounts[job.id] = Account(job, max(due, START))
            if job.waiting is not None:
                account.state = JobState.WAITING
            self._unique(job)
            if job.details.schedule_id is not None and job.details.fire_at is not None:
                fire = (job.details.schedule_id, job.details.fire_at)
                if fire in self.fires:
                    self.broken("I12", f"the fire of {fire[1]:%H:%M:%S} made two jobs")
                self.fires[fire] = job.id

    def _unique(self, job: NewJob) -> None:
        if job.unique is None:
            return
        for id, other in self.accounts.items():
            same = other.new.unique is not None and other.new.unique.key == job.unique.key
            if id != job.id and same and other.state not in ENDED:
                self.broken("I16", f"{short(job.id)} and {short(id)} hold the key {job.unique.key}")

    def told(self, ids: Iterable[UUID]) -> None:
        """A producer was told that these are stored."""
        for id in ids:
            if id not in self.accounts:
                self.broken("I1", f"{short(id)} was never stored, though its producer was told so")

    def _asked(self, request: ClaimRequest, *, answer: Sequence[Claim]) -> None:
        for claim in answer:
            self._claimed(request.worker, claim)

    def _claimed(self, worker: UUID, claim: Claim) -> None:
        self._stage.say(f"claim {short(claim.id)} token {claim.token} attempt {claim.attempt}")
        account = self.accounts.get(claim.id)
        if account is None:
            self.broken("I1", f"{short(claim.id)} was claimed and never accepted")
            return
        if account.holder is not None:
            self.broken("I5", f"{short(claim.id)} was claimed while {short(account.holder)} held it")
        if account.state in ENDED:
            self.broken("I3", f"{short(claim.id)} was claimed after it was {account.state}")
        if self._stage.clock.now() < account.due_at:
            self.broken("I14", f"{short(claim.id)} was claimed before {account.due_at:%H:%M:%S.%f}")
        account.token += 1
        account.spent += 1
        account.holder, account.state = worker, JobState.RUNNING
        if claim.token != account.token:
            self.broken("I4", f"{short(claim.id)} has token {claim.token} at claim {account.token}")
        if claim.attempt != account.spent:
            self.broken(
                "I8", f"{short(claim.id)} counts {claim.attempt} attempts where there were {account.spent}"
            )
        if account.spent > account.new.max_attempts:
            self.broken("I7", f"{short(claim.id)} is tried {account.spent} times")
        self._within_limits(account.new.limits)

    def _within_limits(self, names: Collection[str]) -> None:
        for name in names:
            held = sum(
                account.holder is not None and name in account.new.limits
                for account in self.accounts.values()
            )
            if held > self._limits[name]:
                self.broken("I11", f"{held} jobs of {name} are held at once")

    def _stepped(self, finishes: Sequence[Finish], request: ClaimRequest, *, answer: Step) -> None:
        self._finished(finishes, answer=answer.lost)
        self._asked(request, answer=answer.claims)

    def _finished(self, finishes: Sequence[Finish], *, answer: Collection[UUID]) -> None:
        for finish in finishes:
            claim, change = finish.claim, finish.transition
            lost = claim.id in answer
            self._stage.say(
                f"finish {short(claim.id)} token {claim.token} {change.state}{' LOST' if lost else ''}"
            )
            account = self.accounts[claim.id]
            holds = account.holder is not None and account.token == claim.token
            if holds == lost:
                word = "was refused" if lost else f"wrote, though token {account.token} is the current one"
                self.broken("I6", f"token {claim.token} of {short(claim.id)} {word}")
            if lost:
                continue
            if account.state in ENDED:
                self.broken("I2", f"{short(claim.id)} ended twice")
            stops, account.stopping = account.stopping and change.state in BACK, False
            account.holder, account.state = None, JobState.CANCELLED if stops else change.state
            account.crashes += change.crashed
            account.failures += change.state is not JobState.COMPLETED
            if change.refund and account.state not in ENDED:
                account.spent -= 1
            account.due_at = self._stage.clock.now() + change.delay

    def _started(self, claims: Sequence[Claim], *, answer: Collection[UUID]) -> None:
        for claim in claims:
            account, lost = self.accounts[claim.id], claim.id in answer
            self._stage.say(f"start {short(claim.id)} token {claim.token}{' LOST' if lost else ''}")
            if lost == (account.holder is not None and account.token == claim.token):
                self.broken("I6", f"token {claim.token} of {short(claim.id)} was judged wrongly at its start")

    def _told_to_stop(self, ids: Collection[UUID], *, answer: Collection[UUID]) -> None:
        for id in sorted(answer):
            self._stage.say(f"request_cancel {short(id)}")
            if self.accounts[id].holder is None:
                self.broken("I5", f"{short(id)} was asked to stop, though nobody holds it")
            self.accounts[id].stopping = True

    def _moved(self, moves: Sequence[Move], *, answer: Collection[UUID]) -> None:
        for move in moves:
            if move.id not in answer:
                continue
            self._stage.say(f"move {short(move.id)} to {move.state}")
            account = self.accounts[move.id]
            if account.holder is not None:
                self.broken("I5", f"{short(move.id)} was moved while it was held")
            if account.state in ENDED:
                account.reopened += 1
            account.state, account.due_at = move.state, self._stage.clock.now() + move.delay
            if move.restart:
                account.spent = account.crashes = 0

    # Leaders and fires ---------------------------------------------------------------------------------------------------

    def _acquired(self, name: str, holder: UUID, *, answer: Lease | None) -> None:
        if answer is None:
            return
        self._stage.say(f"{short(holder)} leads, term {answer.term}")
        last = max(self._leaders, default=0)
        if self._leaders.setdefault(answer.term, holder) != holder:
            self.broken("I15", f"term {answer.term} of {name} has two holders")
        if answer.term < last or answer.term > last + 1:
            self.broken("I15", f"term {answer.term} of {name} follows {last}")

    def _noted(self, fires: Sequence[Fired], *, answer: Collection[Any]) -> None:
        for fire in fires:
            self._stage.say(f"fire {fire.fire_at:%H:%M:%S} {short(fire.job_id)} {fire.reason or ''}")
            self.noted.add((fire.schedule_id, fire.fire_at))

    # Handlers ------------------------------------------------------------------------------------------------------------

    def began(self, claim: Claim, worker: UUID) -> Effect:
        """A handler begins."""
        self._stage.say(f"run {short(claim.id)} token {claim.token}")
        effect = Effect(claim.id, claim.token, worker, self._stage.seconds)
        for other in self.effects:
            if other.id == claim.id and other.token == claim.token:
                self.broken("I9", f"{short(claim.id)} is run twice with token {claim.token}")
            if other.id == claim.id and other.ended is None:
                stale = min(
                    effect, other, key=lambda each: each.token
                )  # whoever should have stopped, or not begun
                if not self._was_disturbed(stale):
                    words = f"runs twice, and nobody held up {short(stale.worker)}"
                    self.broken("I10", f"{short(claim.id)} {words}")
        account = self.accounts[claim.id]
        mine = account.holder == worker and account.token == claim.token
        if not mine and not self._was_disturbed(effect):
            self.broken("I10", f"{short(claim.id)} is run by {short(worker)}, which does not hold it")
        self.effects.append(effect)
        return effect

    def ended(self, effect: Effect) -> None:
        """A handler ended, or was stopped."""
        if effect.ended is None:
            effect.ended = self._stage.seconds

    def disturb(self, worker: UUID) -> None:
        """A worker is held up, cut off or slow, through no fault of its own."""
        self.disturbed.setdefault(worker, []).append(self._stage.seconds)

    def _was_disturbed(self, effect: Effect) -> bool:
        return any(at >= effect.began - LINGERS for at in self.disturbed.get(effect.worker, ()))

    # The end -------------------------------------------------------------------------------------------------------------

    @property
    def ended_all(self) -> bool:
        """Whether every job that was accepted has ended."""
        return all(account.state in ENDED for account in self.accounts.values())

    def check_effects(self) -> None:
        """Every run of a handler is explained by an execution (I9); a completed job ran at least once."""
        ran = Counter(effect.id for effect in self.effects)
        for id, account in self.accounts.items():
            if ran[id] > account.token:
                self.broken("I9", f"{short(id)} ran {ran[id]} times with {account.token} claims")
            if account.state is JobState.COMPLETED and not ran[id]:
                self.broken("I9", f"{short(id)} is completed and never ran")
            if account.crashes > DEFAULT_CRASH_CAP:
                self.broken("I7", f"{short(id)} was in {account.crashes} crashes")
