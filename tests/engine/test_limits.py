"""Tests of limits in workers: full use, no excess, no blocking of others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened

from tidemill import Breaker, Limit, Rate
from tidemill.domain.breaker import BreakerPhase, phase_at
from tidemill.domain.cluster import Worker
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import Rule
from tidemill.domain.records import Setting
from tidemill.domain.states import JobState as S
from tidemill.ids import new_id


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as found:
        yield found


class Gauge:
    """Counts concurrent runs by name, and their peak."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now: Counter[object] = Counter()
        self.most: Counter[object] = Counter()

    @contextmanager
    def inside(self, *names: object) -> Iterator[None]:
        with self._lock:
            for name in names:
                self.now[name] += 1
                self.most[name] = max(self.most[name], self.now[name])
        try:
            yield
        finally:
            with self._lock:
                self.now.subtract(names)


def test_limits_are_used_fully_and_never_exceeded(harness: Harness) -> None:
    gauge = Gauge()

    @harness.app.task(limits=[Limit(2, key="account"), Limit(5, name="all")])
    async def work(account: int) -> None:
        with gauge.inside(account, "all"):
            # Wait until all five slots, and both slots of an account, are in use.
            for _ in range(round(PATIENCE / 0.001)):
                if gauge.most["all"] == 5 and gauge.most[account] == 2:
                    break
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.002)

    @harness.app.task(max_concurrent=1)
    def alone() -> None:
        with gauge.inside("alone"):
            time.sleep(0.001)

    jobs = [*work.enqueue_many([{"account": n % 4} for n in range(80)]), *alone.enqueue_many([{}] * 20)]
    with harness.worker(concurrency=20), harness.worker(concurrency=20):
        harness.ends(*jobs)
    assert {harness.state(job) for job in jobs} == {S.COMPLETED}
    assert gauge.most == {0: 2, 1: 2, 2: 2, 3: 2, "all": 5, "alone": 1}
    names = ["all", "task/alone", *(f"work.limit.account/{n}" for n in range(4))]
    assert [use.used for use in harness.line.real.uses({}, names)] == [0] * len(names)


def rules_of(harness: Harness) -> dict[str, Rule]:
    return {rule.name: rule for rule in harness.line.real.rules()}


@pytest.mark.long
def test_slots_of_a_dead_worker_are_free_when_its_jobs_are_reclaimed(harness: Harness) -> None:
    @harness.app.task(limits=[Limit(1, name="one")])
    async def work() -> None: ...

    jobs = work.enqueue_many([{}] * 3)
    store, dead = harness.line.real, Worker(new_id(), "dead")
    store.register(dead, lease=timedelta(seconds=1))
    assert len(store.claim(ClaimRequest(dead.id, store.gates(), 9, rules=rules_of(harness)))) == 1
    assert store.claim(ClaimRequest(dead.id, store.gates(), 9, rules=rules_of(harness))) == []
    with harness.worker():
        harness.ends(*jobs)
    assert [use.used for use in store.uses({}, ["one"])] == [0]


def test_jobs_behind_a_full_limit_do_not_block_others(harness: Harness) -> None:
    go = threading.Event()

    @harness.app.task(limits=[Limit(1, name="one")])
    def slow() -> None:
        go.wait(PATIENCE)

    @harness.app.task
    def free() -> None: ...

    held = slow.enqueue_many([{}] * 300)
    try:
        with harness.worker(threads=4):
            harness.becomes(held[0], S.RUNNING)
            harness.ends(*free.enqueue_many([{}] * 50))
            running = [job for job in held if harness.state(job) in (S.CLAIMED, S.RUNNING)]
            assert running == [held[0]]
            harness.app.jobs.cancel(task=slow.name, status="pending")
            go.set()
            harness.ends(*held)
    finally:
        go.set()


@pytest.mark.long
def test_no_window_has_more_starts_than_its_rate_limit(harness: Harness) -> None:
    per = timedelta(seconds=0.5)

    @harness.app.task(limits=[Rate(20, per=per), Rate(30, per=4 * per, name="slower")])
    async def work() -> None: ...

    jobs = work.enqueue_many([{}] * 45)
    with harness.worker(), harness.worker():
        rows = harness.ends(*jobs)
    begun = sorted(row.claimed_at for row in rows if row.claimed_at is not None)
    assert len(begun) == 45
    assert all(later - first >= per for first, later in zip(begun, begun[20:], strict=False))
    assert all(later - first >= 4 * per for first, later in zip(begun, begun[30:], strict=False))


@pytest.mark.parametrize("name", ["queue/q", "queue", "tenant/acme", "tenant"])
def test_a_queue_and_a_tenant_can_be_limited_while_workers_run(harness: Harness, name: str) -> None:
    gauge, go = Gauge(), threading.Event()

    @harness.app.task(queue="q")
    def work() -> None:
        with gauge.inside("all"):
            go.wait(PATIENCE)

    @harness.app.task(queue="q", max_concurrent=2)
    def more() -> None:
        work()

    try:
        with harness.worker(threads=8):
            harness.line.real.put_rules([Rule(name, max=3, pinned=True)])
            harness.line.real.notify(["change"])
            eventually(lambda: name in harness.runners()[0].rules, PATIENCE)
            harness.becomes(more.using(tenant="acme").enqueue(), S.RUNNING)
            jobs = work.using(tenant="acme").enqueue_many([{}] * 6)
            eventually(lambda: gauge.now["all"] == 3, PATIENCE)
            held = [job.claim.limits for runner in harness.runners() for job in runner.holding()]
            assert {name.partition("/")[0] in str(limits) for limits in held} == {True}
            go.set()
            harness.ends(*jobs)
    finally:
        go.set()
    assert gauge.most["all"] == 3


@pytest.mark.long
def test_a_breaker_opens_holds_jobs_without_an_attempt_and_closes_again(harness: Harness) -> None:
    broken = threading.Event()
    broken.set()
    tried: list[int] = []
    rule = Breaker("api", failures=0.5, least=4, rest=timedelta(seconds=1.5))

    @harness.app.task(breaker=rule, retry=None)
    def call(n: int) -> None:
        tried.append(n)
        if broken.is_set():
            raise ConnectionError("it is down")

    def phase() -> BreakerPhase:
        (use,) = harness.line.real.uses({}, ["breaker/api"])
        return phase_at(use.breaker, use.now or harness.clock.now())

    failed = call.enqueue_many([{"n": n} for n in range(4)])
    began = harness.clock.monotonic()
    with harness.worker(threads=1):
        harness.ends(*failed)
        eventually(lambda: phase() is not BreakerPhase.CLOSED, PATIENCE)
        later = call.enqueue_many([{"n": n} for n in range(100, 130)])
        eventually(lambda: any(harness.state(job) is S.FAILED for job in later), PATIENCE)  # the first probe
        seen, rests = len(tried), int((harness.clock.monotonic() - began) / rule.rest.total_seconds())
        waiting = [harness.row(job) for job in later]
        # On a slow machine, more than one probe may have run by now.
        assert seen <= 4 + rule.probes * (rests + 1)
        assert {row.attempt for row in waiting if row.state is S.PENDING} == {0}
        assert sum(row.state is S.PENDING for row in waiting) >= 25
        broken.clear()
        harness.ends(*later)
        assert sum(harness.state(job) is S.COMPLETED for job in later) >= 25
        eventually(lambda: phase() is BreakerPhase.CLOSED, PATIENCE)


def set_all(harness: Harness, key: str, value: object) -> None:
    harness.line.real.put_settings([Setting(key, value)])
    harness.line.real.notify(["change"])


def test_a_disabled_worker_claims_nothing_until_it_is_enabled(harness: Harness) -> None:
    @harness.app.task
    def work() -> None: ...

    set_all(harness, "worker_enabled", False)
    with harness.worker():
        job = work.enqueue()
        eventually(lambda: not harness.runners()[0].config.enabled, PATIENCE)
        assert harness.state(job) is S.PENDING
        set_all(harness, "worker_enabled", True)
        harness.ends(job)


def test_settings_of_a_task_apply_to_its_next_execution(harness: Harness) -> None:
    @harness.app.task(name="slow")
    async def slow() -> None:
        await asyncio.sleep(60)

    @harness.app.task(name="bad")
    async def bad() -> None:
        raise ValueError

    @harness.app.task(name="patient")
    async def patient() -> None:
        raise ValueError

    set_all(harness, "task/slow", {"timeout": 0.05, "max_attempts": 1})
    set_all(harness, "task/bad", {"max_attempts": 1})
    set_all(harness, "task/patient", {"retry_delay": 3600})
    with harness.worker():
        late, failed = harness.ends(slow.enqueue(), bad.enqueue())
        waiting = harness.becomes(patient.enqueue(), S.SCHEDULED)
    assert (late.state, late.attempt) == (S.TIMED_OUT, 1)
    assert (failed.state, failed.attempt) == (S.FAILED, 1)
    assert timedelta(minutes=59) < waiting.run_at - waiting.created_at


@pytest.mark.long
def test_a_tenant_with_many_jobs_does_not_block_one_with_few(harness: Harness) -> None:
    @harness.app.task
    async def work() -> None:
        await asyncio.sleep(0.01)

    mine = work.using(tenant="a").enqueue_many([{}] * 3000)
    with harness.worker(concurrency=10):
        harness.becomes(mine[20], S.COMPLETED)
        yours = work.using(tenant="b").enqueue_many([{}] * 10)
        harness.ends(*yours)
        assert harness.state(mine[-1]) is S.PENDING
        harness.app.jobs.cancel(tenant="a", status="pending")
