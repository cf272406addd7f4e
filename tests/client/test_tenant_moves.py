"""The live move of a tenant to another shard: what is carried, what stays, and every interruption."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.shards_kit import SHARDS, drain, sharded_app, unsettled, urls_of

from tidemill import App, Every, On, Rate
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import JobFilter
from tidemill.domain.job import Finish, JobRow, NewJob
from tidemill.domain.records import PauseKind
from tidemill.domain.states import LIVE, JobState
from tidemill.domain.tenant_placement import PlacementState, TenantPlacement
from tidemill.engine.exchange.lane_reader import PAUSES
from tidemill.errors import BadSettings, TenantMoving, UsageError
from tidemill.ids import new_id
from tidemill.shards import move
from tidemill.shards.map import FRESH
from tidemill.shards.move import MoveProgress, TenantMove
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import wants

TENANT = "eu-acme"
RAN: list[int] = []


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with unsettled(), sharded_app(urls_of(request.param, tmp_path, request)) as app:
        _declare(app)
        yield app


@pytest.fixture
def memory() -> Iterator[App]:
    with unsettled(), sharded_app(dict.fromkeys(("home", *SHARDS), "memory://")) as app:
        _declare(app)
        yield app


def _declare(app: App) -> None:
    RAN.clear()

    @app.task(name="count")
    def count(number: int) -> None:
        RAN.append(number)

    @app.task(name="wait")
    def wait() -> None: ...


def enqueue(app: App, numbers: range, **options: Any) -> None:
    task = app.bound_task("count").using(**options)
    with app.tenant(TENANT):
        for number in numbers:
            task.enqueue(number=number)


def store(app: App, name: str) -> Store:
    return app.stores[name]


def unfinished(app: App, name: str) -> int:
    return sum(store(app, name).count(JobFilter(TENANT, states=LIVE)).values())


# Carried data ------------------------------------------------------------------------------------------------------------


def test_jobs_that_have_not_begun_go_to_the_new_shard_unchanged(app: App) -> None:
    enqueue(app, range(5))
    enqueue(app, range(5, 8), delay="1h", tags=["late"])
    before = store(app, "eu").jobs(JobFilter(TENANT)).items
    row = app.shards.move(TENANT, "us")
    assert (row.shard, row.state, row.target, row.former) == ("us", PlacementState.PLACED, None, ("eu",))
    assert store(app, "us").jobs(JobFilter(TENANT)).items == before
    assert store(app, "eu").jobs(JobFilter(TENANT)).items == []
    drain(app)
    assert RAN == [0, 1, 2, 3, 4]
    assert store(app, "us").pauses() == []


def test_new_jobs_and_the_history_are_found_after_a_move(app: App) -> None:
    enqueue(app, range(2))
    drain(app)
    app.shards.move(TENANT, "us")
    enqueue(app, range(2, 4))
    assert store(app, "us").count(JobFilter(TENANT)) == {JobState.PENDING: 2}
    assert store(app, "eu").count(JobFilter(TENANT)) == {JobState.COMPLETED: 2}
    assert len(app.jobs.list(tenant=TENANT).items) == 4


def test_definitions_with_their_versions_and_schedules_go_along(app: App) -> None:
    first = app.definitions.save("report", "count", args={"number": 1}, tenant=TENANT)
    app.definitions.save("report", "count", args={"number": 2}, tenant=TENANT)
    app.schedules.add("count", Every("1h"), "hourly", args={"number": 3}, tenant=TENANT)
    app.schedules.add("count", Every("1h"), "off", args={"number": 4}, tenant=TENANT)
    app.schedules.pause("off", tenant=TENANT)
    versions = store(app, "eu").definition_versions(first.id, tenant=TENANT)
    before = {row.key: row for row in store(app, "eu").schedules(tenant=TENANT)}
    app.shards.move(TENANT, "us")
    assert store(app, "us").definition_versions(first.id, tenant=TENANT) == versions
    assert store(app, "eu").definitions(tenant=TENANT, deleted=True) == []
    assert store(app, "eu").schedules(tenant=TENANT) == []
    after = {row.key: row for row in store(app, "us").schedules(tenant=TENANT)}
    assert after.keys() == before.keys()
    for key, row in before.items():
        assert (after[key].id, after[key].enabled, after[key].next_fire_at, after[key].note) == (
            row.id, row.enabled, row.next_fire_at, row.note,
        )  # fmt: skip


def test_a_tenant_moves_away_and_back(app: App) -> None:
    enqueue(app, range(3))
    app.definitions.save("report", "count", args={"number": 1}, tenant=TENANT)
    app.schedules.add("count", Every("1h"), "hourly", args={"number": 3}, tenant=TENANT)
    app.shards.move(TENANT, "us")
    app.definitions.save("report", "count", args={"number": 2}, tenant=TENANT)
    row = app.shards.move(TENANT, "eu")
    assert (row.shard, row.former) == ("eu", ("us",))
    (definition,) = store(app, "eu").definitions(tenant=TENANT)
    assert definition.version == 2
    drain(app)
    assert RAN == [0, 1, 2]


def test_a_tenant_of_the_home_store_moves_to_a_shard(app: App) -> None:
    app.stores["default"].place([TenantPlacement("eu-old", "default")])
    with app.tenant("eu-old"):
        app.enqueue("count", number=1)
    assert app.shards.move("eu-old", "us").shard == "us"
    assert store(app, "us").count(JobFilter("eu-old")) == {JobState.PENDING: 1}


def declare_rate(app: App, **options: Any) -> None:
    """Declare a task that may start three times an hour."""

    @app.task(name="send", limits=[Rate(3, per="1h", **options)])
    def send(number: int) -> None: ...


def send(app: App, numbers: range) -> None:
    task = app.bound_task("send")
    with app.tenant(TENANT):
        for number in numbers:
            task.enqueue(number=number)


def run_within_rates(store: Store) -> int:
    """Claim what the rates allow, and finish it; return the number of jobs."""
    claims = store.claim(wants(store)._replace(rules={rule.name: rule for rule in store.rules()}))
    assert store.finish([Finish(claim, COMPLETED) for claim in claims]) == frozenset()
    return len(claims)


@pytest.mark.parametrize("burst", [None, 3])
@pytest.mark.parametrize("killed", [None, "_carry_starts", "_release", "_write"])
def test_a_rate_keeps_its_count_when_the_tenant_moves(
    app: App, burst: int | None, killed: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three starts of this hour were in the old shard, so one is left in the new one."""
    declare_rate(app, burst=burst)
    send(app, range(2))
    assert run_within_rates(store(app, "eu")) == 2
    if killed is not None:
        original = getattr(TenantMove, killed)

        def ends(self: TenantMove, *args: Any) -> Any:
            answer = original(self, *args)
            if self._map.rows()[0].state is PlacementState.DRAINING:
                raise Killed
            return answer

        monkeypatch.setattr(TenantMove, killed, ends)
        with pytest.raises(Killed):
            app.shards.move(TENANT, "us")
        monkeypatch.setattr(TenantMove, killed, original)
    app.shards.move(TENANT, "us")
    send(app, range(2, 6))
    assert run_within_rates(store(app, "us")) == 1


def test_a_move_is_in_the_audit_log(memory: App) -> None:
    enqueue(memory, range(1))
    memory.shards.move(TENANT, "us")
    actions = [record.entry.action for record in memory.audit.list(tenant=TENANT)]
    assert {"tenant.move_started", "tenant.moved"} <= set(actions)


# Jobs that have begun ----------------------------------------------------------------------------------------------------


def test_a_running_job_ends_in_its_shard_and_nothing_starts_in_the_other_before(memory: App) -> None:
    """The target is paused until the source has no unfinished job, so no limit of the tenant is exceeded."""
    enqueue(memory, range(1))
    started, finish = threading.Event(), threading.Event()
    seen: list[tuple[int, bool]] = []

    @memory.task(name="long")
    def long() -> None:
        started.set()
        finish.wait(10)

    with memory.tenant("eu-long"):
        job = long.enqueue()
    worker = threading.Thread(target=lambda: memory.at_store("eu").testing().drain())
    worker.start()
    assert started.wait(10)

    def report(progress: MoveProgress) -> None:
        paused = [(p.kind, p.name) for p in store(memory, "us").pauses()]
        seen.append((progress.left, (PauseKind.TENANT, "eu-long") in paused))
        if len(seen) == 3:
            with memory.tenant("eu-long"):
                memory.enqueue("count", number=9)
            finish.set()

    memory.shards.move("eu-long", "us", report=report)
    worker.join(10)
    assert seen[:3] == [(1, True)] * 3
    assert store(memory, "eu").get([job.id], tenant="eu-long")[0].state is JobState.COMPLETED
    assert store(memory, "us").count(JobFilter("eu-long")) == {JobState.PENDING: 1}
    assert store(memory, "us").pauses() == []


def test_a_move_waits_longer_than_clients_keep_placements_and_workers_keep_pauses() -> None:
    assert max(FRESH, PAUSES) < move.SETTLED


def test_a_move_waits_from_the_change_of_the_placement(memory: App, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(memory, range(1))
    waits: list[float] = []
    monkeypatch.setattr(move, "SETTLED", 7.0)
    monkeypatch.setattr(time, "sleep", waits.append)
    memory.shards.move(TENANT, "us")
    assert len(waits) == 2  # before the switch, for the workers; and after it, for the clients
    assert all(6.0 < seconds <= 7.0 for seconds in waits)


def test_a_pause_of_a_person_outlives_the_move(memory: App) -> None:
    enqueue(memory, range(1))
    memory.control.pause("tenant", TENANT, reason="bill")
    memory.shards.move(TENANT, "us")
    assert [pause.reason for pause in store(memory, "us").pauses()] == ["bill"]


def test_a_pause_that_a_person_sets_during_the_move_outlives_it(memory: App) -> None:
    enqueue(memory, range(1))
    memory.shards.move(TENANT, "us", report=lambda _: memory.control.pause("tenant", TENANT, reason="bill"))
    assert [pause.reason for pause in store(memory, "us").pauses()] == ["bill"]


# Interruptions -----------------------------------------------------------------------------------------------------------

STEPS = [
    "_hold", "_copy_definitions", "_carry_schedules", "_stop", "_start", "_settle", "_carry_starts", "_forget_definitions", "_release", "_write",
]  # fmt: skip


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_a_move_that_was_killed_is_continued(
    app: App, step: str, when: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(app, range(4))
    enqueue(app, range(4, 6), delay="1h")
    app.definitions.save("report", "count", args={"number": 1}, tenant=TENANT)
    app.schedules.add("count", Every("1h"), "hourly", args={"number": 3}, tenant=TENANT)
    app.schedules.add("count", Every("1d"), "daily", args={"number": 3}, tenant=TENANT)
    jobs = store(app, "eu").jobs(JobFilter(TENANT)).items
    plans = {row.key: row.next_fire_at for row in store(app, "eu").schedules(tenant=TENANT)}
    monkeypatch.setattr(move, "LOT", 2)
    original, calls = getattr(TenantMove, step), Counter[str]()

    def killed(self: TenantMove, *args: Any) -> Any:
        calls[step] += 1
        if calls[step] == nth and when == "before":
            raise Killed
        answer = original(self, *args)
        if calls[step] == nth:
            raise Killed
        return answer

    monkeypatch.setattr(TenantMove, step, killed)
    with suppress(Killed):
        app.shards.move(TENANT, "us")
    monkeypatch.setattr(TenantMove, step, original)
    _check_places(app, len(jobs))
    (row,) = store(app, "default").placed([TENANT])
    if (row.shard, row.state) != ("us", PlacementState.PLACED):
        app.shards.move(TENANT, "us")
    assert store(app, "us").jobs(JobFilter(TENANT)).items == jobs
    assert unfinished(app, "eu") == 0
    assert {row.key: row.next_fire_at for row in store(app, "us").schedules(tenant=TENANT)} == plans
    assert all(row.enabled for row in store(app, "us").schedules(tenant=TENANT))
    assert store(app, "eu").schedules(tenant=TENANT) == []
    drain(app)
    assert sorted(RAN) == [0, 1, 2, 3]


@pytest.mark.parametrize("verb", ["receive", "withdraw"])
def test_a_move_that_was_killed_between_two_stores_is_continued(
    app: App, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(app, range(4))
    jobs = store(app, "eu").jobs(JobFilter(TENANT)).items
    kind = type(store(app, "eu"))
    original = getattr(kind, verb)

    def killed(self: Store, *args: Any, **options: Any) -> Any:
        original(self, *args, **options)
        raise Killed

    monkeypatch.setattr(kind, verb, killed)
    with pytest.raises(Killed):
        app.shards.move(TENANT, "us")
    monkeypatch.setattr(kind, verb, original)
    _check_places(app, len(jobs))
    drain(app)  # the source may run what is still there
    app.shards.move(TENANT, "us")
    drain(app)
    assert sorted(RAN) == [0, 1, 2, 3]
    assert unfinished(app, "eu") == unfinished(app, "us") == 0


def _check_places(app: App, number: int) -> None:
    """Each job can be claimed in at most one shard, and is in at least one."""
    ready = frozenset({JobState.PENDING, JobState.SCHEDULED})
    claimable = Counter(
        job.id for name in SHARDS for job in store(app, name).jobs(JobFilter(TENANT, states=ready)).items
    )
    assert set(claimable.values()) <= {1}
    assert (
        len({job.id for name in SHARDS for job in store(app, name).jobs(JobFilter(TENANT)).items}) == number
    )


# What happens during a move ----------------------------------------------------------------------------------------------


def test_jobs_enqueued_during_a_move_run_once(app: App) -> None:
    """One client knows the new placement; another one still writes to the old shard."""
    enqueue(app, range(3))
    late = iter(range(3, 6))

    def report(_: MoveProgress) -> None:
        number = next(late, None)
        if number is not None:
            enqueue(app, range(number * 10, number * 10 + 1))
            store(app, "eu").enqueue(
                [as_new(store(app, "us").jobs(JobFilter(TENANT), limit=1).items[0], number)]
            )

    app.shards.move(TENANT, "us", report=report)
    drain(app)
    assert sorted(RAN) == [0, 1, 2, 3, 4, 5, 30, 40, 50]


def as_new(row: JobRow, number: int) -> NewJob:
    """A new job like a stored one, as a client with an old placement writes it."""
    return NewJob(new_id(), row.task, f'{{"number":{number}}}', TENANT)


def test_a_job_that_a_worker_claims_during_its_transfer_runs_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue(app, range(3))
    kind = type(store(app, "eu"))
    original = kind.receive

    def claimed_now(self: Store, *args: Any, **options: Any) -> Any:
        answer = original(self, *args, **options)
        app.at_store("eu").testing().drain()
        return answer

    monkeypatch.setattr(kind, "receive", claimed_now)
    app.shards.move(TENANT, "us")
    monkeypatch.setattr(kind, "receive", original)
    drain(app)
    assert sorted(RAN) == [0, 1, 2]
    assert store(app, "us").count(JobFilter(TENANT)) == {}


def test_a_job_cancelled_during_its_transfer_does_not_run(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue(app, range(2))
    kind = type(store(app, "eu"))
    original = kind.receive

    def cancelled_now(self: Store, *args: Any, **options: Any) -> Any:
        answer = original(self, *args, **options)
        app.jobs.get(store(app, "eu").jobs(JobFilter(TENANT), limit=1).items[0].id, tenant=TENANT).cancel()
        return answer

    monkeypatch.setattr(kind, "receive", cancelled_now)
    app.shards.move(TENANT, "us")
    drain(app)
    assert len(RAN) == 1
    assert Counter(job.status for job in app.jobs.list(tenant=TENANT).items) == {
        "cancelled": 1, "completed": 1,
    }  # fmt: skip


# Refusals ----------------------------------------------------------------------------------------------------------------


def test_a_second_move_is_refused(memory: App) -> None:
    enqueue(memory, range(1))
    TenantMove(memory.shards._map, memory.stores, TENANT).begin("us")
    with pytest.raises(TenantMoving, match="is moving to the shard 'us'"):
        memory.shards.move(TENANT, "default")
    lock = memory.stores["default"].hold(f"move:{TENANT}")
    assert lock is not None
    with pytest.raises(TenantMoving, match="another process is moving"):
        memory.shards.move(TENANT, "us")
    lock.release()
    assert memory.shards.move(TENANT, "us").shard == "us"


def test_a_move_is_cancelled_before_its_switch_only(memory: App) -> None:
    enqueue(memory, range(1))
    TenantMove(memory.shards._map, memory.stores, TENANT).begin("us")
    row = memory.shards.cancel_move(TENANT)
    assert (row.shard, row.state, row.target, row.former) == ("eu", PlacementState.PLACED, None, ())
    with pytest.raises(UsageError, match="is not moving"):
        memory.shards.cancel_move(TENANT)
    started = memory.shards.of(TENANT)
    memory.stores["default"].replace(
        [replace(started, shard="us", state=PlacementState.DRAINING, target="eu", former=("eu",))]
    )
    with pytest.raises(TenantMoving, match="go to the shard 'us' already"):
        memory.shards.cancel_move(TENANT)


def test_tenants_that_cannot_move_are_refused(memory: App) -> None:
    with pytest.raises(BadSettings, match="there is no shard named 'ap'"):
        memory.shards.move(TENANT, "ap")
    with pytest.raises(UsageError, match="has no shard to leave"):
        memory.shards.move("eu-none", "us")
    with pytest.raises(UsageError, match="is the app's own"):
        memory.shards.move("default", "us")
    enqueue(memory, range(1))
    with pytest.raises(UsageError, match="is in the shard 'eu' already"):
        memory.shards.move(TENANT, "eu")


def test_a_tenant_with_a_live_flow_or_a_reacting_schedule_is_refused(memory: App) -> None:
    memory.schedules.add("count", On("paid"), "react", args={"number": 1}, tenant=TENANT)
    memory.shards.place(TENANT)
    with pytest.raises(UsageError, match=r"schedules that react to events or to ends of jobs \(react\)"):
        memory.shards.move(TENANT, "us")
    memory.schedules.remove("react", tenant=TENANT)
    with memory.tenant(TENANT), memory.batch("b"):
        memory.enqueue("count", number=1)
    with pytest.raises(UsageError, match="has flows or batches that have not ended"):
        memory.shards.move(TENANT, "us")
    assert memory.shards.of(TENANT).state is PlacementState.PLACED


def test_a_due_schedule_fires_once_during_a_move(app: App) -> None:
    _due_schedule(app)
    app.shards.move(TENANT, "us")
    for name in SHARDS:
        app.at_store(name).testing().fire()
    drain(app)
    assert RAN == [1]


def test_every_job_runs_once_while_workers_of_both_shards_drain_and_clients_enqueue(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers here know no pause, so only the order of the three writes keeps a job from running twice."""
    monkeypatch.setattr(move, "LOT", 7)
    enqueue(app, range(60))
    template = store(app, "eu").jobs(JobFilter(TENANT), limit=1).items[0]
    is_over = threading.Event()

    def work(name: str) -> None:
        while not is_over.is_set():
            app.at_store(name).testing().drain(5)

    def produce() -> None:
        for number in range(100, 120):
            enqueue(app, range(number, number + 1))
            store(app, "eu").enqueue([as_new(template, number + 100)])

    threads = [threading.Thread(target=work, args=[name]) for name in SHARDS]
    threads.append(threading.Thread(target=produce))
    for thread in threads:
        thread.start()
    try:
        app.shards.move(TENANT, "us")
        threads[-1].join(60)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(60)
    drain(app)
    assert sorted(RAN) == [*range(60), *range(100, 120), *range(200, 220)]


def test_a_schedule_that_is_due_while_it_is_carried_fires_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    _due_schedule(app)
    original = TenantMove._start

    def fired_in_between(self: TenantMove, *args: Any) -> None:
        app.at_store("eu").testing().fire()
        original(self, *args)
        app.at_store("eu").testing().fire()
        app.at_store("us").testing().fire()

    monkeypatch.setattr(TenantMove, "_start", fired_in_between)
    app.shards.move(TENANT, "us")
    drain(app)
    assert RAN == [1]


def test_a_schedule_keeps_its_last_fire_and_its_fires(app: App) -> None:
    _due_schedule(app)
    assert app.at_store("eu").testing().fire() == 1
    (before,) = store(app, "eu").schedules(tenant=TENANT)
    assert before.last_fire_at is not None
    fires = app.store.fires(before.id, tenant=TENANT)
    app.shards.move(TENANT, "us")
    (after,) = store(app, "us").schedules(tenant=TENANT)
    assert (after.last_fire_at, after.next_fire_at) == (before.last_fire_at, before.next_fire_at)
    assert app.store.fires(before.id, tenant=TENANT) == fires
    assert [row.job_id for row in store(app, "us").active_jobs([before.id])] == [fires[0].job_id]


def _due_schedule(app: App) -> None:
    """Store a schedule of the tenant whose only fire so far was due five seconds ago."""
    app.schedules.add("count", Every("1h"), "often", args={"number": 1}, tenant=TENANT)
    eu = store(app, "eu")
    (row,) = eu.schedules(tenant=TENANT)
    due = eu.now() - timedelta(seconds=5)
    assert eu.put_schedules([replace(row, next_fire_at=due)], now=due - timedelta(hours=1)) == frozenset()


def test_an_event_reaches_both_shards_while_jobs_end_in_the_old_one(memory: App) -> None:
    """A job that waits for the event may be in either of them."""
    row = memory.shards.place(TENANT)
    moved = replace(row, shard="us", state=PlacementState.DRAINING, target="eu", former=("eu",))
    assert memory.stores["default"].replace([moved]) == {TENANT}
    memory.shards._map.forget(TENANT)
    with memory.tenant(TENANT):
        memory.emit("paid")
    names = {name: [event.name for event in store(memory, name).events(tenant=TENANT)] for name in SHARDS}
    assert names == {"eu": ["paid"], "us": ["paid"]}
    assert [event.name for event in memory.store.events(tenant=TENANT)] == ["paid"]
