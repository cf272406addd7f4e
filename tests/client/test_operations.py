"""Tests of ``app.stats``: each report by name, on every store."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill import App, Context, Every, PermanentError
from tidemill.client.stats import snapshot
from tidemill.client.stats.api import NAMED, StatsApi
from tidemill.client.stats.reports import Report, document
from tidemill.client.stats.snapshot import Snapshot
from tidemill.clock import ManualClock
from tidemill.domain.alerts import Thresholds
from tidemill.domain.cluster import Worker
from tidemill.domain.job import Claim, Move, NewJob, Progress, ProgressReport
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.records import Setting
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter
from tidemill.ids import new_id

HOUR = timedelta(hours=1)
NOTHING = timedelta(0)


@pytest.fixture
def shop(app: App) -> App:
    """Six ended jobs of two tasks and two tenants, and one waiting job."""

    @app.task(name="good", queue="mail")
    def good(number: int) -> int:
        return number

    @app.task(name="bad")
    def bad(number: int) -> None:
        raise PermanentError(f"order {number} not found")

    for tenant in ("acme", "other"):
        with app.tenant(tenant):
            good.enqueue(number=1)
            bad.enqueue(number=2)
    with app.tenant("acme"):
        good.enqueue(number=3)
        bad.enqueue(number=4)
    app.testing().drain()
    with app.tenant("other"):
        good.enqueue(number=5)
    return app


class Still:
    """An in-memory app with a manual clock, and a worker that claims its jobs."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 3, 1, 12, tzinfo=UTC))
        self.app = App("memory://", clock=self.clock)
        self.worker = new_id()

        @self.app.task(name="work", timeout=timedelta(seconds=400))
        def work() -> None: ...

        self.work = work

    def alive(self, lease: timedelta = timedelta(seconds=30)) -> None:
        self.app.store.register(Worker(self.worker, "w1", host="h", concurrency=3), lease=lease)

    def take(self) -> list[Claim]:
        self.work.enqueue()
        return self.app.store.claim(ClaimRequest(self.worker, self.app.store.lanes(), 10))

    def pass_by(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def codes(self, **how: Any) -> list[str]:
        return [alert.code for alert in self.app.stats.alerts(**how)]


@pytest.fixture
def still() -> Iterator[Still]:
    made = Still()
    yield made
    made.app.close()


def test_every_report_works_on_an_empty_store(app: App) -> None:
    for name in NAMED:
        found = getattr(app.stats, name)()
        json.dumps(document(found))
        if isinstance(found, Report) and name != "throughput":
            assert (list(found), len(found)) == ([], 0), name
    assert sum(step.total for step in app.stats.throughput()) == 0
    assert app.stats.alerts() == []
    assert app.stats.overview().success_rate is None


def test_ended_jobs_are_reported_by_task_tenant_and_worker(shop: App) -> None:
    stats = shop.stats
    assert [(row.task, row.failures, row.tenants) for row in stats.failures()] == [("bad", 3, 2)]
    assert [(row.tenant, row.jobs, row.failed, row.failure_rate) for row in stats.tenants()] == [
        ("acme", 4, 2, 0.5),
        ("other", 2, 1, 0.5),
    ]
    assert all(row.run_time >= (row.duration or NOTHING) >= NOTHING for row in stats.tenants())
    assert {(row.task, row.jobs) for row in stats.durations()} == {("good", 3), ("bad", 3)}
    assert {(row.task, row.retried, row.attempts) for row in stats.retries()} == {
        ("good", 0, 1.0),
        ("bad", 0, 1.0),
    }
    (worker,) = stats.worker_performance()
    assert (worker.total, worker.completed, worker.failed) == (6, 3, 3)
    assert {row.task for row in stats.lag(longer_than=NOTHING)} == {"good", "bad"}
    assert list(stats.lag()) == []


def test_current_states_queues_and_workers_are_reported(shop: App) -> None:
    stats = shop.stats
    assert {row.status: row.jobs for row in stats.by_status()} == {
        JobState.PENDING: 1,
        JobState.COMPLETED: 3,
        JobState.FAILED: 3,
    }
    (queue,) = stats.queue_depth()
    assert (queue.queue, queue.depth, queue.pending, queue.late) == ("mail", 1, 1, 0)
    assert queue.age is not None
    assert queue.age >= NOTHING
    (worker,) = stats.active_workers()
    assert (worker.name, worker.ended, worker.failed, worker.running) == ("testing", 6, 3, 0)


def test_throughput_counts_all_jobs_that_ended_in_its_window(shop: App) -> None:
    for window, steps in (("1h", 60), ("24h", 96), ("7d", 168)):
        found = shop.stats.throughput(window)
        assert (len(found), sum(step.completed for step in found), sum(step.failed for step in found)) == (
            steps,
            3,
            3,
        )
    busy = [step for step in shop.stats.throughput("7d") if step.total]
    assert all(step.duration_p50 is not None and step.duration_p95 is not None for step in busy)
    assert len(shop.stats.throughput("2h")) == 60
    with pytest.raises(BadFilter, match="window: '2x' is not a duration"):
        shop.stats.throughput("2x")
    with pytest.raises(BadFilter, match="longer than zero"):
        shop.stats.throughput(NOTHING)


@pytest.mark.parametrize("far", [timedelta.max, timedelta.min, timedelta(days=40_000)])
def test_a_window_beyond_the_calendar_is_refused_with_a_clear_error(shop: App, far: timedelta) -> None:
    questions = [
        name
        for name, asked in inspect.getmembers(StatsApi, inspect.isfunction)
        if "window" in inspect.signature(asked).parameters and not inspect.iscoroutinefunction(asked)
    ]
    assert len(questions) > 10
    for name, span in [
        *((name, "window") for name in questions),
        ("throughput", "step"),
        ("stuck", "longer_than"),
    ]:
        with pytest.raises(BadFilter, match=r"the longest duration is a hundred years|longer than zero"):
            getattr(shop.stats, name)(*(["queue"] if name == "throughput_by" else []), **{span: far})


def test_errors_that_differ_only_in_a_number_form_one_group(shop: App) -> None:
    (group,) = shop.stats.errors()
    assert (group.task, group.jobs, group.tenants, group.message) == ("bad", 3, 2, "order # not found")
    assert group.example is not None
    assert shop.jobs.get(group.example, tenant="*").status == "failed"


def test_figures_of_a_tenant_are_exact_next_to_a_busier_one(still: Still) -> None:
    @still.app.task(name="bad")
    def bad() -> None:
        raise PermanentError("no")

    quiet, busy = 40, 30_000
    for tenant, number in (("hooli", quiet), ("globex", busy)):
        with still.app.tenant(tenant):
            bad.enqueue()
            still.app.testing().drain()
        jobs = [NewJob(new_id(), "work", tenant=tenant) for _ in range(number)]
        still.app.store.enqueue(jobs)
        pending = frozenset({JobState.PENDING})
        still.app.store.move([Move(job.id, tenant, pending, JobState.CANCELLED) for job in jobs])
        still.pass_by(1)
    found = still.app.stats.tenants()
    assert {row.tenant: (row.jobs, row.failed) for row in found} == {
        "hooli": (quiet + 1, 1),
        "globex": (busy + 1, 1),
    }
    assert not found.sampled
    assert still.app.stats.health().failed == 2


def test_reports_are_restricted_to_the_current_tenant(shop: App) -> None:
    with shop.tenant("other"):
        assert [row.tenant for row in shop.stats.tenants()] == ["other"]
        assert [row.failures for row in shop.stats.failures()] == [1]
        assert shop.stats.overview().ended == 2
        assert sum(step.total for step in shop.stats.throughput()) == 2
        assert [row.tenant for row in shop.stats.tenants(tenant="acme")] == ["acme"]
        assert len(shop.stats.tenants(tenant="*")) == 2
    with shop.tenant("acme"):
        assert list(shop.stats.queue_depth()) == []
        assert {row.status for row in shop.stats.by_status()} == {JobState.COMPLETED, JobState.FAILED}


def test_the_overview_has_counts_depth_and_success_rate(shop: App) -> None:
    found = shop.stats.overview()
    assert (found.ended, found.depth, found.success_rate) == (6, 1, 0.5)
    assert found.counts == {"pending": 1}


def test_retried_jobs_are_reported_with_their_average_and_highest_attempts(app: App) -> None:
    @app.task(retry="immediate")
    def recover(ctx: Context, succeeds_at: int) -> None:
        if ctx.attempt < succeeds_at:
            raise ConnectionError("not yet")

    for succeeds_at in (1, 1, 2, 3):
        recover.enqueue(succeeds_at=succeeds_at)
    app.testing().drain()
    (row,) = app.stats.retries()
    assert (row.task, row.jobs, row.retried, row.attempts, row.most) == ("recover", 4, 2, 1.75, 3)


def test_the_overview_counts_definitions_and_schedules_by_state(shop: App) -> None:
    shop.definitions.save("on", "good", args={"number": 1})
    shop.definitions.save("off", "bad", args={"number": 1})
    shop.definitions.disable("off")
    paused = shop.schedules.add("good", Every("1h"), "hourly", args={"number": 1})
    shop.schedules.pause(paused.id)
    found = shop.stats.overview()
    assert (found.definitions, found.disabled_definitions) == (1, 1)
    assert (found.schedules, found.disabled_schedules) == (0, 1)
    elsewhere = shop.stats.overview(tenant="elsewhere")
    assert (elsewhere.definitions, elsewhere.disabled_schedules) == (0, 0)


@pytest.mark.parametrize("window", [HOUR, timedelta(days=7)])
def test_the_rate_of_the_overview_equals_the_last_full_bar_of_the_chart(shop: App, window: timedelta) -> None:
    minute = timedelta(minutes=1)
    soon = shop.store.now() + minute
    completed = 0.0
    for at in (soon, soon - minute):
        bar = shop.store.series(HOUR, minute, tenant="*", now=at).slots[-2]
        found = snapshot.overview(Snapshot(shop.store, "*", at), window)
        assert (found.completed_per_minute, found.failed_per_minute) == (bar.completed, bar.failed)
        completed += found.completed_per_minute
    assert completed == 3
    idle = snapshot.overview(Snapshot(shop.store, "*", soon + 5 * minute), window)
    assert (idle.completed_per_minute, idle.failed_per_minute, idle.ended) == (0, 0, 6)


def test_alerts_and_health_count_every_ended_job(shop: App) -> None:
    found = {alert.code: alert.text for alert in shop.stats.alerts(Thresholds(failure_sample=1))}
    assert found["failure_rate"].startswith("3 of 6 jobs failed (50%) in the last hour")
    assert shop.stats.health().failed == 3


def test_every_report_has_an_async_variant_that_keeps_the_tenant(shop: App) -> None:
    for name, asked in inspect.getmembers(StatsApi, inspect.isfunction):
        if not name.startswith("_") and not inspect.iscoroutinefunction(asked):
            assert inspect.iscoroutinefunction(getattr(StatsApi, f"a{name}")), name
            assert name in (*NAMED, "overview", "alerts", "metrics", "throughput_by")

    async def story() -> None:
        with shop.tenant("other"):
            assert [row.tenant for row in await shop.stats.atenants(HOUR)] == ["other"]
        assert len(await shop.stats.atenants(window=HOUR)) == 2
        assert "tidemill_queue_depth" in await shop.stats.ametrics()

    asyncio.run(story())


# ----------------------------------------------------------------------------------------------------- held jobs


def test_orphans_are_listed_with_the_time_since_their_heartbeat(still: Still) -> None:
    still.alive()
    (claim,) = still.take()
    still.pass_by(29)
    assert list(still.app.stats.orphans()) == []
    still.pass_by(1)
    (row,) = still.app.stats.orphans()
    assert (row.id, row.worker_name, row.silent_for, row.held_for) == (
        claim.id,
        "w1",
        timedelta(seconds=30),
        timedelta(seconds=30),
    )


def test_stuck_and_overdue_jobs_are_distinct(still: Still) -> None:
    still.alive(lease=HOUR)
    still.take()
    still.pass_by(319)
    assert list(still.app.stats.stuck()) == [], "it has used less than 80 % of its timeout of 400 s"
    still.pass_by(1)
    (stuck,) = still.app.stats.stuck()
    assert (stuck.held_for, stuck.over, stuck.status) == (timedelta(seconds=320), None, JobState.RUNNING)
    assert (list(still.app.stats.overdue()), list(still.app.stats.stuck(HOUR))) == ([], [])
    still.pass_by(90)
    (late,) = still.app.stats.overdue()
    assert late.over == timedelta(seconds=10)
    found = still.app.stats.health()
    assert (found.stuck, found.overdue, found.orphans, found.silent_workers) == (1, 1, 0, 0)


def test_leaders_are_listed_with_the_results_of_their_duties(still: Still) -> None:
    store = still.app.store
    lease = store.acquire("duties", still.worker, ttl=HOUR)
    assert lease is not None
    facts = {"promote": {"last_tick": still.clock.now().isoformat(), "items": 5, "errors": 1}}
    still.pass_by(10)
    store.renew("duties", still.worker, lease.term, ttl=HOUR, metadata={"duties": facts})
    still.pass_by(5)
    (row,) = still.app.stats.leaders()
    assert (row.lease, row.holder, row.items, row.errors) == ("duties", still.worker, 5, 1)
    assert [span and span.total_seconds() for span in (row.held_for, row.silent_for, row.idle_for)] == [
        15,
        5,
        15,
    ]
    still.pass_by(300)
    store.renew("duties", still.worker, lease.term, ttl=HOUR)
    assert still.codes() == ["stuck_leader"]


# -------------------------------------------------------------------------------------------------------- alerts


def test_alerts_follow_the_state_of_the_system(still: Still) -> None:
    assert still.codes() == []
    still.work.enqueue()
    assert still.codes() == ["no_workers"]
    still.alive(lease=timedelta(seconds=600))
    assert still.codes() == []
    still.take()
    still.pass_by(320)
    assert still.codes() == ["stuck_jobs"]
    still.pass_by(300)
    assert still.codes() == ["lost_workers", "orphans", "stuck_jobs"]
    still.pass_by(880)
    assert still.codes() == ["lost_workers", "orphans", "stuck_jobs"]
    still.pass_by(1)
    assert still.codes() == ["orphans", "stuck_jobs"]
    still.app.store.put_settings([Setting("worker_enabled", False)])
    assert still.codes() == ["worker_disabled", "orphans", "stuck_jobs"]


def test_a_job_that_reports_progress_is_not_stuck(still: Still) -> None:
    still.alive(lease=10 * HOUR)

    @still.app.task(name="endless", timeout=None)
    def endless() -> None: ...

    endless.enqueue()
    (claim,) = still.app.store.claim(ClaimRequest(still.worker, still.app.store.lanes(), 10))
    still.pass_by(900)
    assert still.codes() == ["stuck_jobs"]
    still.app.store.report([ProgressReport(claim.id, claim.token, claim.worker, Progress(0.5))])
    assert still.codes() == []
    still.pass_by(299)
    assert (still.codes(), still.app.stats.health().stuck) == ([], 0)
    still.pass_by(1)
    assert (still.codes(), still.app.stats.health().stuck) == (["stuck_jobs"], 1)
    (row,) = still.app.stats.stuck()
    assert (row.quiet_for.total_seconds(), row.held_for.total_seconds()) == (300, 1200)


def test_a_long_job_within_its_timeout_is_not_stuck(still: Still) -> None:
    still.alive(lease=10 * HOUR)

    @still.app.task(name="report", timeout=timedelta(minutes=30))
    def report() -> None: ...

    for _ in range(10):
        report.enqueue()
    still.app.store.claim(ClaimRequest(still.worker, still.app.store.lanes(), 10))
    still.pass_by(15 * 60)
    assert still.codes() == []
    still.pass_by(9 * 60)
    assert still.codes() == ["stuck_jobs"]


def test_a_pause_by_an_operator_does_not_make_a_queue_too_old(still: Still) -> None:
    def too_old() -> list[str | None]:
        return [alert.subject for alert in still.app.stats.alerts() if alert.code == "queue_age"]

    control = still.app.control
    still.alive(lease=10 * HOUR)
    for queue in ("default", "mail"):
        still.app.store.enqueue([NewJob(new_id(), "work", queue=queue, tenant="acme")])
    still.pass_by(901)
    assert too_old() == ["default", "mail"]
    for kind, name, expected in (
        ("queue", "mail", ["default"]),
        ("all", "", []),
        ("tenant", "acme", ["default", "mail"]),
    ):
        control.pause(kind, name)
        assert too_old() == expected, kind
        with still.app.tenant("acme"):
            assert too_old() == ([] if kind == "tenant" else expected), kind
        control.resume(kind, name)
    assert too_old() == ["default", "mail"]


def test_a_killed_worker_is_reported_for_a_while_although_another_is_alive(still: Still) -> None:
    def gone() -> str:
        lines = still.app.stats.metrics().splitlines()
        return next(line for line in lines if line.startswith('tidemill_workers{liveness="gone"}'))

    store, other, crashed, left = still.app.store, new_id(), new_id(), new_id()
    store.register(Worker(other, "w2"), lease=10 * HOUR)
    for id in (crashed, left):
        store.register(Worker(id, "w3" if id == crashed else "w4"), lease=HOUR)
    still.alive()
    still.pass_by(10)
    store.retire([left])
    assert (still.codes(), gone()) == ([], 'tidemill_workers{liveness="gone"} 0')
    still.pass_by(20)
    (alert,) = still.app.stats.alerts()
    assert (alert.code, alert.value) == ("lost_workers", 1)
    assert "w1" in alert.text
    store.retire([crashed], crashed=True)
    still.pass_by(5)
    (alert,) = still.app.stats.alerts()
    assert (alert.value, gone()) == (2, 'tidemill_workers{liveness="gone"} 2')
    with still.app.tenant("acme"):
        assert still.codes() == []
    still.pass_by(901)
    assert still.codes() == []


def test_jobs_of_a_task_that_no_living_worker_knows_are_reported_exactly(still: Still) -> None:
    store = still.app.store

    def unknown() -> list[tuple[str | None, float]]:
        raised = still.app.stats.alerts()
        return [(alert.subject, alert.value) for alert in raised if alert.code == "unknown_task"]

    store.register(Worker(still.worker, "w1", tasks=("work",)), lease=10 * HOUR)
    for _ in range(3):
        store.enqueue([NewJob(new_id(), "renamed")])
    store.enqueue([NewJob(new_id(), "tidemill.callback")])
    still.work.enqueue()
    still.pass_by(120)
    assert unknown() == []
    still.pass_by(1)
    assert unknown() == [("renamed", 3)]
    with still.app.tenant("acme"):
        assert unknown() == []
    other = new_id()
    store.register(Worker(other, "w2", tasks=("renamed",)), lease=HOUR)
    assert unknown() == []
    store.retire([other])
    assert unknown() == [("renamed", 3)]
    store.register(Worker(new_id(), "w3"), lease=HOUR)  # one that takes every task
    assert unknown() == []


def test_unknown_tasks_are_not_reported_while_no_worker_is_alive(still: Still) -> None:
    still.app.store.enqueue([NewJob(new_id(), "renamed")])
    still.pass_by(500)
    assert still.codes() == ["no_workers"]


def test_thresholds_come_from_settings_or_from_the_caller(still: Still) -> None:
    still.alive()
    for _ in range(3):
        still.work.enqueue()
    assert still.codes() == []
    still.app.store.put_settings([Setting("alerts.queue_depth", 2), Setting("alerts.nonsense", 2)])
    assert still.codes() == ["bad_setting", "queue_depth"]
    assert still.codes(thresholds=Thresholds()) == []


# ------------------------------------------------------------------------------------------------------- metrics


def test_metrics_are_read_from_the_store_once_in_five_seconds(still: Still) -> None:
    def depth() -> str | None:
        lines = still.app.stats.metrics().splitlines()
        return next((line for line in lines if line.startswith("tidemill_queue_depth{")), None)

    assert depth() is None
    still.work.enqueue()
    still.pass_by(4.9)
    assert depth() is None
    still.pass_by(0.1)
    assert depth() == 'tidemill_queue_depth{queue="default"} 1'


def test_metrics_name_few_queues_and_sum_up_the_others(still: Still) -> None:
    still.alive()
    for number in range(60):
        still.app.store.enqueue([NewJob(new_id(), "work", queue=f"q{number:02}")])
    told = still.app.stats.metrics().splitlines()
    assert {'tidemill_workers{liveness="alive"} 1', "tidemill_worker_slots 3"} <= set(told)
    lines = [line for line in told if line.startswith("tidemill_queue_")]
    assert 'tidemill_queue_depth{queue="other"} 10' in lines
    assert len(lines) == 2 * 51


def test_metrics_report_recently_ended_jobs_by_task(shop: App) -> None:
    lines = shop.stats.metrics().splitlines()
    assert 'tidemill_recent_jobs{task="bad",outcome="failed"} 3' in lines
    assert 'tidemill_recent_jobs{task="good",outcome="completed"} 3' in lines
    assert 'tidemill_jobs{status="pending"} 1' in lines


def test_metrics_add_up_all_ends_and_times_by_task(shop: App) -> None:
    shop.store.fold_ends()
    lines = shop.stats.metrics().splitlines()
    assert 'tidemill_jobs_ended_total{task="bad",queue="default",status="failed"} 3' in lines
    assert 'tidemill_jobs_ended_total{task="good",queue="mail",status="completed"} 3' in lines
    assert 'tidemill_executions_total{task="good",status="succeeded"} 3' in lines
    assert 'tidemill_jobs_retried_total{task="good"} 0' in lines
    assert 'tidemill_job_run_seconds_bucket{task="good",le="+Inf"} 3' in lines
    assert 'tidemill_job_wait_seconds_count{task="bad"} 3' in lines
    assert 'tidemill_definitions{status="active"} 0' in lines


def test_metrics_count_active_and_disabled_schedules(still: Still) -> None:
    for key in ("one", "two"):
        still.app.schedules.add(still.work, Every(timedelta(hours=1)), key)
    still.app.schedules.pause("two")
    lines = still.app.stats.metrics().splitlines()
    assert 'tidemill_schedules{status="active"} 1' in lines
    assert 'tidemill_schedules{status="disabled"} 1' in lines


def test_openmetrics_names_the_trace_of_a_recent_job(still: Still) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    still.work.using(headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}).enqueue()
    still.app.testing().drain()
    lines = still.app.stats.metrics(openmetrics=True).splitlines()
    assert lines[-1] == "# EOF"
    assert "# TYPE tidemill_jobs_ended counter" in lines
    (bucket,) = [line for line in lines if "tidemill_job_run_seconds_bucket" in line and "trace_id" in line]
    assert bucket.startswith(
        'tidemill_job_run_seconds_bucket{task="work",le="0.001"} 1 # {trace_id="' + trace + '"} 0 '
    )
    assert "trace_id" not in still.app.stats.metrics()
