"""The state of the model: a store, its oracle, and the actors on it.

Every verb is called at the same instant on the store under test and on the oracle, a memory store, if there is one; the answers
must be equal. Numbers in an action are taken modulo the number of choices, so that every action has an effect in nearly every
state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from tests.conformance.accounts import Accounts

from tidemill.clock import ManualClock
from tidemill.domain import decide
from tidemill.domain.cluster import WORKER_EXPIRY, Worker
from tidemill.domain.decide import OrphanRule, Policy
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import (
    Claim,
    Details,
    ErrorInfo,
    Finish,
    JobRow,
    Move,
    NewJob,
    Transition,
)
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import Rule
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    ReviewRequested,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
)
from tidemill.domain.record import Record, rows_kept
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.retry import Exponential, Fixed, Immediate, NoRetry
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore

T = TypeVar("T")
S = JobState
SECOND = timedelta(seconds=1)
BOOM = ErrorInfo("ValueError", "boom", "Traceback …")

POLICIES = [
    Policy(retry=Exponential(jitter=0.0)),
    Policy(retry=Fixed(wait=7 * SECOND), crash_cap=2),
    Policy(retry=Immediate()),
    Policy(retry=Immediate(), orphans=OrphanRule.REVIEW),
    Policy(retry=NoRetry(), orphans=OrphanRule.FAIL),
]
OUTCOMES: list[Outcome] = [
    Succeeded('{"ok":true}'),
    Failed(BOOM),
    Failed(BOOM, permanent=True),
    Failed(BOOM, retry_after=3 * SECOND),
    TimedOut(10 * SECOND),
    Cancelled("asked to"),
    Crashed("the process is gone"),
    Released("shutdown"),
    Snoozed(5 * SECOND),
    Suspended("awaits a signal"),
    Suspended("sleeps", 9 * SECOND),
    ReviewRequested("please look", '{"draft":1}'),
]
ARCHIVE = ArchivePolicy("old", max_age=20 * SECOND, batch=1000)
JITTER = 0.5
RECORDS = {0: Record.NONE, 1: Record.LAST, 2: Record.LAST}
"""How much is kept of some jobs, by their ids."""
NAMES = ["one", "two", "speed"]
LIMITED = {4: ("speed",), 5: ("one",), 6: ("two", "one"), 7: ("two", "speed")}
"""Limits of some jobs."""


class DrawnAction(NamedTuple):
    """One drawn action: its kind, and three small numbers to choose with."""

    kind: str
    a: int
    b: int
    c: int


class _Undo(Exception):
    """Leaves a transaction."""


def _plain(answer: object) -> object:
    """Return an answer without sequence numbers, which may differ between stores."""
    match answer:
        case Claim():
            return answer._replace(seq=None, limits=answer.limits or ())
        case tuple() if hasattr(answer, "_fields"):
            return tuple(_plain(part) for part in answer)
        case list():
            return [_plain(part) for part in answer]
        case _:
            return answer


def _counted(lane: Lane, n: int) -> tuple[str, ...]:
    """Return the limits that a claim counts a lane against, sometimes one more than its jobs name."""
    return (*lane.limits, "two") if n == 4 and "two" not in lane.limits else lane.limits


class Model:
    """A store under test, its oracle, and the state of all participants."""

    def __init__(self, store: Store, oracle: MemoryStore | None) -> None:
        self.stores: list[Store] = [store, *([oracle] if oracle is not None else [])]
        self.clock = ManualClock()
        self.accounts = Accounts()
        self.count = 0
        self.rules: dict[str, Rule] = {}
        self.created: list[UUID] = []
        self.old: list[Claim] = []
        self.claims_of: dict[UUID, list[Claim]] = {}
        for _ in range(3):
            self._add_worker()

    # --------------------------------------------------------------------------------------------------- tools

    def both(self, ask: Callable[[Store], T], shape: Callable[[T], object] = lambda answer: answer) -> T:
        """Call the store and its oracle; return the store's answer after checking that they agree."""
        answers = [ask(store) for store in self.stores]
        shown = [_plain(shape(answer)) for answer in answers]
        assert shown[0] == shown[-1], shown
        return answers[0]

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _id(self) -> UUID:
        return UUID(int=0x0197A000_0000_7000_8000_000000000000 + self._number())

    def _add_worker(self) -> None:
        worker = Worker(self._id(), "w", queues=("a", "b"))
        self.both(lambda store: store.register(worker, lease=WORKER_EXPIRY, now=self.clock.now()))
        self.claims_of[worker.id] = []

    def _replace_worker(self, worker: UUID) -> None:
        """Replace a worker that is gone; it keeps its claims and may still try to write."""
        self.old += self.claims_of.pop(worker)
        self._add_worker()

    def _worker(self, n: int) -> UUID:
        return sorted(self.claims_of)[n % len(self.claims_of)]

    def _busy_worker(self, n: int) -> UUID:
        """Return a worker that holds jobs, if any does."""
        busy = sorted(worker for worker, held in self.claims_of.items() if held)
        return busy[n % len(busy)] if busy else self._worker(n)

    def _jobs(self, states: frozenset[JobState]) -> list[JobRow]:
        where = JobFilter(ALL_TENANTS, states=states)
        return self.both(lambda store: store.jobs(where, sort=Sort.OLDEST, limit=1000)).items

    def _claim(self, worker: UUID, n: int) -> Callable[[Store], ClaimRequest]:
        def request(store: Store) -> ClaimRequest:
            lanes = sorted(
                [*store.lanes(["a"] if n == 7 else None), *store.gates(["a"] if n == 7 else None)],
                key=lambda lane: (-lane.priority, *lane.key),
            )
            turned = lanes[n % len(lanes) :] + lanes[: n % len(lanes)] if lanes else []
            tasks = {5: ["t1", "none"], 6: ["t0"]}.get(n)
            limited = [lane._replace(quota=1 + n, limits=_counted(lane, n)) for lane in turned]
            return ClaimRequest(worker, limited, 1 + n % 5, tasks, start=n % 3 != 0, rules=self.rules)

        return request

    def _take(self, worker: UUID, claims: Sequence[Claim]) -> None:
        self.accounts.claimed(claims)
        self.accounts.counted.claimed(claims, self.rules, self.clock.now())
        self.claims_of[worker] += claims

    def _end(self, claims: Sequence[Claim], outcome: Outcome, policy: Policy) -> None:
        """Decide and write these ends; the accounts know which must be lost."""
        batch = [self._finish(claim, outcome, policy) for claim in claims]
        lost = self.both(lambda store: store.finish(batch, now=self.clock.now()))
        self.accounts.finished(batch, lost)
        self._drop_claims(claims)

    def _finish(self, claim: Claim, outcome: Outcome, policy: Policy) -> Finish:
        transition = decide.decide(claim, outcome, policy, self.clock.now(), JITTER)
        record = RECORDS.get(claim.id.int % 8, Record.FULL)
        return Finish(
            claim,
            self._with_distinct_delay(transition),
            keep=rows_kept(record, transition.state, claim.token),
            result=outcome.result if isinstance(outcome, Succeeded) else getattr(outcome, "output", None),
            error=outcome.error if isinstance(outcome, Failed) else None,
            started_ago=0.5 if claim.token % 2 else None,
            ended_ago=0.25 if claim.attempt % 2 else 0.0,
        )

    def _with_distinct_delay(self, transition: Transition) -> Transition:
        """Make due times distinct: the order of jobs due at the same instant is not defined."""
        if transition.delay <= timedelta(0):
            return transition
        return replace(transition, delay=transition.delay + timedelta(microseconds=self._number()))

    def _drop_claims(self, claims: Sequence[Claim]) -> None:
        gone = {(claim.id, claim.token) for claim in claims}
        for worker, held in self.claims_of.items():
            self.claims_of[worker] = [claim for claim in held if (claim.id, claim.token) not in gone]
        self.old += [claim for claim in claims if claim not in self.old]

    def _move(self, moves: Sequence[Move]) -> None:
        changed = self.both(lambda store: store.move(moves, now=self.clock.now()))
        self.accounts.moved(moves, changed)

    def _new(self, a: int, b: int, c: int, **fields: Any) -> NewJob:
        return NewJob(
            self._id(),
            f"t{a % 2}",
            f'{{"n":{self.count}}}',
            tenant=f"tenant{b % 2}",
            queue="ab"[c % 2],
            priority=[0, 0, 5][a % 3],
            max_attempts=1 + b % 4,
            timeout=[None, 10 * SECOND, timedelta(hours=1)][c % 3],
            expires_at=self.clock.now() + 40 * SECOND if b == 7 else None,
            limits=LIMITED.get(c, ()),
            details=Details(correlation_id=f"c{a}", tags=("x",), metadata={"n": b}) if a > 4 else Details(),
            **fields,
        )

    def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        answers = self.both(lambda store: store.enqueue(jobs, now=self.clock.now()))
        self._created([job for job, answer in zip(jobs, answers, strict=True) if answer.created])

    def _created(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            self.created.append(job.id)
            self.accounts.accept(job.id, job.max_attempts, job.limits)
