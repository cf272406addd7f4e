"""The actions of the model test, and the comparison after each of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from tests.conformance.model import BOOM, NAMES, OUTCOMES, POLICIES, SECOND, Model

from tidemill.domain import decide
from tidemill.domain.cluster import WORKER_EXPIRY, Pulse
from tidemill.domain.deals import Ask, DealRequest
from tidemill.domain.decide import Action
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Change, Finish, LogEntry, Move, NewJob, Progress, ProgressReport, UniqueHold
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.outcome import Crashed, Failed, Outcome, Succeeded, TimedOut
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import ENDED, HELD, LIVE, JobState
from tidemill.errors import JobExists
from tidemill.stores.base import StepResult, Store
from tidemill.testing.conformance.kit import due

S = JobState
ARCHIVE = ArchivePolicy("old", max_age=20 * SECOND, batch=1000)
LABELLED = frozenset({S.PENDING, S.SCHEDULED})
EXPIRING = frozenset({S.PENDING, S.SCHEDULED, S.WAITING})
ADVANCES = [SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 21 * SECOND, 31 * SECOND, 60 * SECOND, 300 * SECOND]


class _Undo(Exception):
    """Leaves a transaction."""


class Actions(Model):
    """The actions; each chooses with three small numbers."""

    # ------------------------------------------------------------------------------------------------ producers

    def enqueue(self, a: int, b: int, c: int) -> None:
        self._enqueue([self._new(a, b, c)])

    def enqueue_batch(self, a: int, b: int, c: int) -> None:
        self._enqueue([self._new(a + n, b, c + n) for n in range(1 + b % 4)])

    def enqueue_delayed(self, a: int, b: int, c: int) -> None:
        wait = (1 + a) * SECOND + timedelta(microseconds=self._number())
        with_delay = {"delay": wait} if c % 2 else {"run_at": self.clock.now() + wait}
        self._enqueue([self._new(a, b, c, **with_delay)])

    def enqueue_waiting(self, a: int, b: int, c: int) -> None:
        hold = UniqueHold(f"key{a % 3}") if b % 4 == 0 else None
        self._enqueue([self._new(a, 7, c, waiting="its turn", unique=hold), self._new(a, b, c)][: 1 + c % 2])

    def enqueue_unique(self, a: int, b: int, c: int) -> None:
        jobs: list[NewJob] = []
        for n in range(1 + c % 2):
            window = [None, None, 20 * SECOND][(b + n) % 3]
            hold = UniqueHold(f"key{a % 3}", until_claimed=(b + n) % 2 == 0, window=window)
            jobs.append(self._new(a, c, b, unique=hold))
        self._enqueue(jobs)

    def enqueue_known(self, a: int, b: int, c: int) -> None:
        present = self._jobs(frozenset(JobState))
        if not present:
            return
        batch = [self._new(a, b, c), self._new(a, b, c)._replace(id=present[a % len(present)].id)]

        def refused(store: Store) -> bool:
            try:
                store.enqueue(batch, now=self.clock.now())
            except JobExists:
                return True
            return False

        assert self.both(refused)

    # -------------------------------------------------------------------------------------------------- workers

    def claim(self, a: int, b: int, c: int) -> None:
        worker = self._worker(a)
        request = self._claim(worker, b)
        self._take(worker, self.both(lambda store: store.claim(request(store), now=self.clock.now())))

    def start(self, a: int, b: int, c: int) -> None:
        claims = self.claims_of[self._busy_worker(a)][: 1 + b % 3]
        lost = self.both(lambda store: store.start(claims, now=self.clock.now()))
        assert lost == self.accounts.lost(claims)

    def report(self, a: int, b: int, c: int) -> None:
        claims = self.claims_of[self._busy_worker(a)][:2] + self.old[-1:]
        reports = [
            ProgressReport(claim.id, claim.token, claim.worker, Progress(b / 8, b, 8, f"at {c}"))
            for claim in claims
        ]
        if len({report.id for report in reports}) < len(reports):
            return
        lost = self.both(lambda store: store.report(reports, now=self.clock.now()))
        assert lost == self.accounts.lost(claims)

    def log(self, a: int, b: int, c: int) -> None:
        claims = (self.claims_of[self._busy_worker(a)] + self.old)[-2:]
        claims = claims if len({claim.id for claim in claims}) == len(claims) else claims[:1]
        lines = [
            LogEntry(claim.id, claim.token, self.clock.now(), f"{b} of {c}", worker=claim.worker)
            for claim in claims
        ]
        lost = self.both(lambda store: store.log(lines))
        assert lost == self.accounts.lost(claims)
        for claim in claims:
            self.both(
                lambda store, id=claim.id: store.logs(id, tenant=ALL_TENANTS),  # type: ignore[misc]
                lambda answer: [entry for _, entry in answer],
            )

    def beat(self, a: int, b: int, c: int) -> None:
        workers = sorted(self.claims_of) if b % 2 else [self._worker(a)]
        alive = self._beat(workers)
        for worker in workers:
            if worker not in alive:
                self._replace_worker(worker)

    def _beat(self, workers: list[UUID]) -> frozenset[UUID]:
        def shape(pulse: Pulse) -> object:
            return pulse.alive, pulse.draining, sorted(pulse.cancels)

        now = self.clock.now()
        for worker in workers:
            claims = self.both(lambda store, id=worker: store.held(id))  # type: ignore[misc]
            assert all(self.accounts.holders[claim.id] == claim.token for claim in claims)
        return self.both(lambda store: store.beat(workers, lease=WORKER_EXPIRY, now=now), shape).alive

    def finish(self, a: int, b: int, c: int) -> None:
        claims = self.claims_of[self._busy_worker(a)][: 1 + c % 2]
        self._end(claims, OUTCOMES[(b + 8 * (c // 4)) % len(OUTCOMES)], POLICIES[(a + c) % len(POLICIES)])

    def finish_and_follow(self, a: int, b: int, c: int) -> None:
        """Finish with follow-up jobs; some finishes are stale, and some do not complete their job."""
        stale = [self.old[(8 * a + c) % len(self.old)]] if self.old and b % 5 == 0 else []
        claims = stale or self.claims_of[self._busy_worker(a)][: 1 + c % 2]
        outcome: Outcome = Succeeded('"f"') if b % 4 else OUTCOMES[(b + c) % len(OUTCOMES)]
        batch = []
        for claim in claims:
            hold = UniqueHold(f"key{a % 3}") if c % 3 == 0 else None
            jobs = (self._new(a, b, c, unique=hold), self._new(a + 1, b, c))
            batch.append(self._finish(claim, outcome, POLICIES[0])._replace(then=jobs[: 1 + a % 2]))
        lost = self.both(lambda store: store.finish(batch, now=self.clock.now()))
        self.accounts.finished(batch, lost)
        self._drop_claims(claims)
        brought = [job for item in batch for job in item.then]
        ids = [job.id for job in brought]
        stored = self.both(lambda store: {job.id for job in store.get(ids, tenant=ALL_TENANTS)}, sorted)
        done = {item.claim.id for item in batch if item.transition.state is JobState.COMPLETED} - lost
        wanted = [job for item in batch if item.claim.id in done for job in item.then]
        assert {job.id for job in wanted if job.unique is None} <= stored <= {job.id for job in wanted}
        self._created([job for job in brought if job.id in stored])

    def finish_stale(self, a: int, b: int, c: int) -> None:
        if self.old:
            claim = self.old[(8 * a + c) % len(self.old)]
            self._end([claim], OUTCOMES[(b + c) % len(OUTCOMES)], POLICIES[a % len(POLICIES)])

    def step(self, a: int, b: int, c: int) -> None:
        worker = self._busy_worker(a)
        outcome: Outcome = Succeeded('"s"') if c % 3 else Failed(BOOM, permanent=True)
        claims = self.claims_of[worker][: 1 + c % 3]
        batch: list[Finish] = [self._finish(claim, outcome, POLICIES[0]) for claim in claims]
        request = self._claim(worker, b)

        def step(store: Store) -> StepResult:
            return store.step(batch, request(store), now=self.clock.now())

        answer = self.both(step)
        self.accounts.finished(batch, answer.lost)
        self._drop_claims(claims)
        self._take(worker, answer.claims)

    def deal(self, a: int, b: int, c: int) -> None:
        """Finish jobs of one worker, and claim for two of them."""
        workers = sorted({self._busy_worker(a), self._worker(b)})
        claims = self.claims_of[workers[0]][: c % 3]
        batch: list[Finish] = [self._finish(claim, Succeeded('"d"'), POLICIES[0]) for claim in claims]
        request = self._claim(workers[0], b)

        def deal(store: Store) -> StepResult:
            wanted = request(store)
            asks = [Ask(worker, 1 + (c + n) % 3) for n, worker in enumerate(workers)]
            deal = DealRequest(asks, wanted.lanes, wanted.tasks, wanted.start, wanted.rules)
            return store.deal(batch, deal, now=self.clock.now())

        answer = self.both(deal)
        self.accounts.finished(batch, answer.lost)
        self._drop_claims(claims)
        for worker in workers:
            self._take(worker, [claim for claim in answer.claims if claim.worker == worker])

    def crash(self, a: int, b: int, c: int) -> None:
        self._replace_worker(self._worker(a))

    def pause(self, a: int, b: int, c: int) -> None:
        """Pause a worker past its lease while the others send heartbeats; an observer may declare it gone. Then it wakes, sends a
        heartbeat and finishes its jobs, which it still holds if it was not declared gone.
        """
        paused = self._busy_worker(a)
        for _ in range(2):
            self.clock.advance(15.5 * SECOND)
            self._beat([worker for worker in self.claims_of if worker != paused])
        now = self.clock.now()
        request = self._claim(paused, b)
        assert self.both(lambda store: store.claim(request(store), now=now)) == []
        seen = [(beat.worker, beat.beats) for beat in self.both(lambda store: store.heartbeats(now=now))]
        gone = (
            self._declare([(worker, beats) for worker, beats in seen if worker == paused]) if a % 2 else set()
        )
        assert (paused in self._beat([paused])) == (paused not in gone)
        if c % 2:
            self.reclaim(b, b, c)
        if c % 4 == 1:
            self.claim(a + 1, b, c)
        self._end(self.claims_of[paused], OUTCOMES[b % len(OUTCOMES)], POLICIES[c % len(POLICIES)])
        if gone:
            self._replace_worker(paused)

    def _declare(self, seen: list[tuple[UUID, int]]) -> frozenset[UUID]:
        return self.both(lambda store: store.declare_gone(seen, now=self.clock.now()))

    def declare_gone(self, a: int, b: int, c: int) -> None:
        """Declare workers gone; some of them have sent a heartbeat since they were observed."""
        now = self.clock.now()
        seen = [(beat.worker, beat.beats) for beat in self.both(lambda store: store.heartbeats(now=now))]
        late = self._worker(b)
        if c % 2:
            self._beat([late])
        gone = self._declare([item for item in seen if a % 4 == 0 or item[0] in (late, self._worker(a))])
        assert not c % 2 or late not in gone
        for worker in gone & self.claims_of.keys():
            self._replace_worker(worker)

    def retire(self, a: int, b: int, c: int) -> None:
        worker = self._worker(a)
        self.both(lambda store: store.retire([worker], now=self.clock.now()))
        held = {claim.id for claim in self.claims_of[worker]} - self.accounts.lost(self.claims_of[worker])
        self._replace_worker(worker)
        orphans = self.both(lambda store: store.orphans(1000), sorted)
        assert held <= {orphan.id for orphan in orphans}

    # --------------------------------------------------------------------------------------------------- duties

    def reclaim(self, a: int, b: int, c: int) -> None:
        orphans = sorted(self.both(lambda store: store.orphans(1000), sorted))
        assert all(self.accounts.holders[orphan.id] == orphan.token for orphan in orphans)
        self._end(orphans, Crashed("lease expired"), POLICIES[b % len(POLICIES)])

    def time_out(self, a: int, b: int, c: int) -> None:
        overdue = sorted(self.both(lambda store: store.overdue(1000, now=self.clock.now()), sorted))
        self._end(overdue, TimedOut(10 * SECOND), POLICIES[b % len(POLICIES)])

    def promote(self, a: int, b: int, c: int) -> None:
        limit = 1000 if a % 2 else 1 + b % 3
        promoted = self.both(lambda store: store.promote(limit, now=self.clock.now()))
        if c % 2 and promoted.next_run_at is not None and promoted.next_run_at > self.clock.now():
            whole = timedelta(microseconds=-promoted.next_run_at.microsecond % 1000)
            self.clock.advance(promoted.next_run_at - self.clock.now() + whole)
            assert self.both(lambda store: store.promote(limit, now=self.clock.now())).moved >= 1

    def archive(self, a: int, b: int, c: int) -> None:
        now = self.clock.now()
        documents = self.both(
            lambda store: due(store, ARCHIVE, now),
            lambda documents: sorted(documents, key=lambda document: document.id),
        )
        documents = sorted(documents, key=lambda document: document.id)[: 1 + a]
        self.both(lambda store: store.put_archive(documents, now=now))
        ids = [document.id for document in documents]
        copies = self.both(lambda store: store.archived(ids, tenant=ALL_TENANTS))
        assert [copy.id for copy in copies] == ids
        assert all(copy.sound for copy in copies)
        if b % 3 == 0:
            self.retry(a, b, c)
        if b % 4 != 0:
            gone = self.both(lambda store: store.forget(copies))
            assert self.accounts.reopened.isdisjoint(gone)
            self.accounts.archived(gone)

    def advance(self, a: int, b: int, c: int) -> None:
        self.clock.advance(ADVANCES[a])
        if b % 2:
            self._beat(sorted(self.claims_of))

    # ------------------------------------------------------------------------------------------------ operators

    def cancel(self, a: int, b: int, c: int) -> None:
        jobs = self._jobs(LIVE)
        if not jobs:
            return
        job = jobs[(8 * a + b) % len(jobs)]
        if job.state in HELD:
            self._request_cancel([job.id], job.tenant, f"why {c}")
        tenant = "nobody" if c == 7 else job.tenant
        self._move([Move(job.id, tenant, decide.expected(Action.CANCEL), S.CANCELLED, "not wanted")])

    def cancel_undelivered(self, a: int, b: int, c: int) -> None:
        """Request cancels of held jobs, which finish before their worker is notified."""
        for claim in self.claims_of[self._busy_worker(a)][: 1 + c % 2]:
            self._request_cancel([claim.id], claim.tenant, f"why {b}")
        self.finish(a, b, c)

    def _request_cancel(self, ids: list[UUID], tenant: str, reason: str) -> None:
        held = self.both(lambda store: store.request_cancel(ids, tenant=tenant, reason=reason))
        self.accounts.asked_to_stop(held, reason)

    def _act(self, action: Action, a: int, b: int, many: int = 1) -> None:
        jobs = self._jobs(decide.expected(action))
        first = (8 * a + b) % len(jobs) if jobs else 0
        self._move([decide.move(job, action) for job in jobs[first : first + many]])

    def retry(self, a: int, b: int, c: int) -> None:
        self._act(Action.RETRY, a, b)

    def judge(self, a: int, b: int, c: int) -> None:
        self._act([Action.APPROVE, Action.REJECT, Action.RERUN][c % 3], a, b, 2)

    def wake(self, a: int, b: int, c: int) -> None:
        self._act(Action.WAKE, a, b, 2)

    def run_now(self, a: int, b: int, c: int) -> None:
        self._act(Action.RUN_NOW, a, b, 2)

    def expire(self, a: int, b: int, c: int) -> None:
        self._act(Action.EXPIRE, a, b)

    def postpone(self, a: int, b: int, c: int) -> None:
        jobs = self._jobs(frozenset({S.PENDING, S.WAITING}))[:1]
        wait = (1 + b) * SECOND + timedelta(microseconds=self._number())
        self._move(
            [Move(job.id, job.tenant, frozenset({job.state}), S.SCHEDULED, "later", wait) for job in jobs]
        )

    def delete(self, a: int, b: int, c: int) -> None:
        jobs = self._jobs(ENDED)
        if not jobs:
            return
        job = jobs[(8 * a + b) % len(jobs)]
        ids, tenant = [job.id, *self.accounts.holders], "nobody" if c == 7 else job.tenant
        gone = self.both(lambda store: store.delete(ids, tenant=tenant))
        assert gone == (frozenset() if c == 7 else {job.id})
        self.accounts.removed(gone)

    def limit(self, a: int, b: int, c: int) -> None:
        """Put, change or drop a rule while jobs are held under it."""
        name, now = NAMES[a % 3], self.clock.now()
        if b == 7:
            changed = self.both(lambda store: store.drop_rules([name, "nothing"]))
        else:
            rule = Rule(name, max=1 + c % 3, pinned=c == 7)
            if name == "speed":
                burst = [None, 1, 2][b % 3]
                rule = replace(rule, kind=LimitKind.RATE, per=[2, 7][b % 2] * SECOND, burst=burst)
            changed = self.both(lambda store: store.put_rules([rule], now=now))
        self.rules = {rule.name: rule for rule in self.both(lambda store: store.rules())}
        self.accounts.counted.ruled(changed)

    def label(self, a: int, b: int, c: int) -> None:
        """Give waiting jobs another limit, in some of the calls."""
        task, name = f"t{a % 2}", NAMES[b % 3]
        jobs = [job for job in self._jobs(LABELLED) if job.task == task and name not in job.limits]
        if c % 4:
            return
        assert self.both(lambda store: store.label(task, name, limit=1000)) == len(jobs)
        self.accounts.counted.labelled([job.id for job in jobs], name)

    def change(self, a: int, b: int, c: int) -> None:
        """Jobs that wait get another queue or priority, if they are where they were seen."""
        jobs = self._jobs(LABELLED)[a % 3 : a % 3 + 1 + c % 2]
        expect = [LABELLED, frozenset({S.PENDING}), frozenset({S.SCHEDULED})][b % 3]
        queue, priority = [("b", None), (None, 5), ("a", 0)][(a + b) % 3]
        changes = [Change(job.id, job.tenant, expect, queue, priority) for job in jobs]
        wanted = {job.id for job in jobs if job.state in expect}
        assert self.both(lambda store: store.change(changes)) == wanted

    def undo(self, a: int, b: int, c: int) -> None:
        """Leave a transaction over several verbs by an exception: nothing happens."""
        new = self._new(a, b, c)
        claims = self.claims_of[self._busy_worker(a)][:2]
        batch = [self._finish(claim, OUTCOMES[b], POLICIES[0]) for claim in claims]
        free = self._jobs(decide.expected(Action.CANCEL))[:2]
        moves = [decide.move(job, Action.CANCEL) for job in free]
        request = self._claim(self._worker(a), c)

        def attempt(store: Store) -> None:
            with suppress(_Undo), store.transaction():
                store.enqueue([new], now=self.clock.now())
                store.finish(batch, now=self.clock.now())
                store.move(moves, now=self.clock.now())
                store.claim(request(store), now=self.clock.now())
                raise _Undo

        self.both(attempt)

    # --------------------------------------------------------------------------------------------------- checks

    def check(self) -> None:
        """Compare the whole visible state of the store with its oracle and the accounts."""
        everything = JobFilter(ALL_TENANTS)
        jobs = self.both(lambda store: store.jobs(everything, sort=Sort.OLDEST, limit=1000)).items
        ids = [job.id for job in jobs]
        executions = self.both(lambda store: store.executions(ids, tenant=ALL_TENANTS))
        counts = self.both(lambda store: store.count(everything))
        lanes = self.both(
            lambda store: [*store.lanes(), *store.gates()], lambda lanes: {lane.key for lane in lanes}
        )
        gone = sorted(self.accounts.forgotten)
        archive = self.both(lambda store: store.archived(gone, tenant=ALL_TENANTS)) if gone else []
        assert counts == {state: n for state in JobState if (n := sum(job.state is state for job in jobs))}
        expired = self.both(lambda store: store.expired(1000, now=self.clock.now()))
        late = [
            (job.expires_at, job.id)
            for job in jobs
            if job.state in EXPIRING and job.expires_at is not None and job.expires_at <= self.clock.now()
        ]
        assert [job.id for job in expired] == [id for _, id in sorted(late)]
        pending = {
            (job.queue, job.tenant, job.priority, job.limits) for job in jobs if job.state is S.PENDING
        }
        assert {(*lane.key[:3], lane.limits) for lane in lanes} == pending
        self._check_limits()
        self.accounts.check(jobs, executions, [document.id for document in archive])

    def _check_limits(self) -> None:
        now = self.clock.now()
        self.accounts.counted.check(
            self.both(
                lambda store: [use._replace(now=None) for use in store.uses(self.rules, NAMES, now=now)]
            )
        )
        held = self.both(lambda store: [use._replace(now=None) for use in store.uses(self.rules, now=now)])
        assert {use.name: use.used for use in held} == self.accounts.counted.used()


OFTEN = ["claim", "finish"]
NOW_AND_THEN = [
    "limit",
    "enqueue_batch",
    "enqueue_unique",
    "step",
    "promote",
    "promote",
    "retry",
    "wake",
    "finish_stale",
]
KINDS = sorted(name for name in vars(Actions) if not name.startswith("_") and name != "check")
"""Every action by name."""
WEIGHTED = [*KINDS, *NOW_AND_THEN, *OFTEN * 8]
