"""Tests of apps with several stores: where jobs go, and how they are found again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path

import pytest

from tidemill import App, Context, Every, Limit, ManualClock
from tidemill.engine.worker_group import WorkerGroup
from tidemill.errors import BadSettings, JobNotFound, UsageError
from tidemill.stores.memory import MemoryStore

TENANTS = {"acme": "eu", "globex": "us"}


@pytest.fixture
def app() -> Iterator[App]:
    stores = {"default": "memory://", "eu": "memory://", "us": "memory://", "archive": "memory://"}
    with App(stores=stores, clock=ManualClock(), store_for=TENANTS.get) as made:
        yield made


def drain(app: App) -> None:
    for name in app.live_stores:
        app.at_store(name).testing().drain()


# The choice of a store ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "default", "live"),
    [
        (["default"], "default", ("default",)),
        (["default", "jobs"], "jobs", ("jobs", "default")),
        (["eu", "us"], "eu", ("eu", "us")),
        (["archive", "archive-cold", "archive_2025", "eu"], "eu", ("eu",)),
        (["archive"], "archive", ("archive",)),
        (["archivist", "default"], "default", ("default", "archivist")),
    ],
)
def test_the_default_store_is_jobs_then_default_then_the_first_live_one(
    names: list[str], default: str, live: tuple[str, ...]
) -> None:
    with App(stores=dict.fromkeys(names, "memory://")) as app:
        assert (app.store_name, app.live_stores) == (default, live)


def test_each_rule_of_placement_yields_to_the_one_before_it(app: App) -> None:
    @app.task
    def plain() -> None: ...

    @app.task(store="us")
    def placed() -> None: ...

    assert plain.enqueue().store_name == "default"
    assert plain.using(tenant="acme").enqueue().store_name == "eu", "store_for routes the tenant"
    assert plain.using(tenant="initech").enqueue().store_name == "default", "store_for returned None"
    with app.tenant("globex"):
        assert plain.enqueue().store_name == "us", "the tenant of the block counts"
    assert placed.using(tenant="acme").enqueue().store_name == "us", "the task precedes store_for"
    with app.using_store("eu"):
        assert placed.enqueue().store_name == "eu", "the block precedes the task"
        assert placed.using(store="default").enqueue().store_name == "default", "the call precedes the block"
        with app.using_store("us"):
            assert plain.enqueue().store_name == "us"
        assert plain.enqueue().store_name == "eu", "the outer block counts again"
    assert plain.enqueue().store_name == "default"
    assert app.at_store("us").enqueue(plain.name).store_name == "us"


def test_a_job_s_children_stay_in_its_store_unless_a_rule_names_another(app: App) -> None:
    seen: dict[str, str] = {}

    @app.task
    def child() -> None: ...

    @app.task(store="us")
    def placed() -> None: ...

    @app.task
    def parent() -> None:
        seen["child"] = child.enqueue().store_name
        seen["placed"] = placed.enqueue().store_name
        seen["routed"] = child.using(tenant="globex").enqueue().store_name
        with app.using_store("default"):
            seen["block"] = child.enqueue().store_name

    with app.using_store("eu"):
        job = parent.enqueue()
    drain(app)
    assert job.store_name == "eu"
    assert seen == {"child": "eu", "placed": "us", "routed": "us", "block": "default"}
    # The tenant of the fourth child differs, so the listing leaves it out.
    assert [found.store_name for found in job.children()] == ["eu", "default", "us"]
    assert all(found.parent() is not None for found in job.children())


def test_the_block_around_a_worker_does_not_reach_its_jobs(app: App) -> None:
    seen = []

    @app.task
    def child() -> None: ...

    @app.task
    def parent() -> None:
        seen.append(child.enqueue().store_name)

    parent.using(store="eu").enqueue()
    with app.using_store("us"):
        app.at_store("eu").testing().drain()
    assert seen == ["eu"]


def test_the_ambient_store_is_captured_at_the_call_across_coroutines_and_threads(app: App) -> None:
    @app.task
    def plain() -> None: ...

    async def enqueue(store: str, gate: asyncio.Event) -> str:
        with app.using_store(store):
            await gate.wait()
            first = (await plain.aenqueue()).store_name
            second = (await asyncio.to_thread(plain.enqueue)).store_name
            assert first == second
            return first

    async def both() -> list[str]:
        gate = asyncio.Event()
        tasks = [asyncio.create_task(enqueue(store, gate)) for store in ("eu", "us")]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(both()) == ["eu", "us"]
    with ThreadPoolExecutor(1) as pool, app.using_store("eu"):
        assert pool.submit(lambda: plain.enqueue().store_name).result() == "default", (
            "a new thread starts bare"
        )
        carried = copy_context()
        assert pool.submit(lambda: carried.run(plain.enqueue).store_name).result() == "eu"


def test_async_calls_address_the_store_of_the_block(app: App) -> None:
    @app.task
    def plain() -> None: ...

    async def count() -> int:
        with app.using_store("eu"):
            await plain.aenqueue_many([{}, {}])
            return await app.jobs.acount()

    assert asyncio.run(count()) == 2
    assert app.jobs.count() == 0


def test_blocks_of_two_apps_do_not_affect_each_other() -> None:
    stores = {"default": "memory://", "eu": "memory://"}
    with App(stores=stores) as one, App(stores=stores) as two:
        with one.using_store("eu"), two.using_store("default"):
            assert (one.store_name, two.store_name) == ("eu", "default")
        with one.using_store("eu"):
            assert two.store_name == "default"


@pytest.mark.parametrize("name", ["archive", "nowhere"])
def test_a_job_cannot_be_placed_in_a_store_without_workers_by_design(app: App, name: str) -> None:
    @app.task
    def plain() -> None: ...

    with pytest.raises(BadSettings, match="archived jobs" if name == "archive" else "no store named"):
        plain.using(store=name).enqueue()
    with pytest.raises(BadSettings):

        @app.task(store=name)
        def placed() -> None: ...


def test_a_wrong_answer_of_store_for_is_an_error(app: App) -> None:
    with App(stores={"eu": "memory://", "us": "memory://"}, store_for=lambda _tenant: "asia") as other:
        other.task(name="plain")(lambda: None)
        with pytest.raises(
            BadSettings, match="store_for returned 'asia' for tenant default; there are eu, us"
        ):
            other.enqueue("plain")
    with pytest.raises(BadSettings, match="give a function"):
        App("memory://", store_for="eu")  # type: ignore[arg-type]


@pytest.mark.parametrize("stores", [{}, {"a,b": "memory://"}, {"a=1": "memory://"}, {"": "memory://"}])
def test_bad_names_of_stores_are_refused(stores: dict[str, str]) -> None:
    with pytest.raises(BadSettings):
        App(stores=stores)


def test_a_follow_up_in_another_store_is_refused(app: App) -> None:
    errors = []

    @app.task(store="us")
    def placed() -> None: ...

    @app.task
    def plain() -> None: ...

    @app.task
    def parent(ctx: Context) -> None:
        ctx.then(plain)
        try:
            ctx.then(placed)
        except UsageError as error:
            errors.append(str(error))

    job = parent.using(store="eu").enqueue()
    drain(app)
    assert "placed goes to the store 'us'" in errors[0].replace("test_several_stores.", "")
    assert [child.store_name for child in job.children()] == ["eu"]


# Reading -------------------------------------------------------------------------------------------------------------------


def test_a_job_is_found_in_whatever_store_it_is(app: App) -> None:
    @app.task
    def plain() -> int:
        return 7

    job = plain.using(store="us").enqueue()
    found = app.jobs.get(job.id)
    assert found.store_name == "us"
    drain(app)
    assert (job.result(), found.refresh().result()) == (7, 7)
    assert app.jobs.get(job.id, store="us").id == job.id
    with pytest.raises(JobNotFound):
        app.jobs.get(job.id, store="eu")
    with pytest.raises(JobNotFound):
        app.at_store("eu").jobs.get(job.id)
    with app.using_store("eu"):
        assert job.refresh().store_name == "us", "a handle keeps its store"


def test_the_apis_address_the_store_of_the_block_or_of_at_store(app: App) -> None:
    @app.task
    def plain() -> None: ...

    plain.using(store="eu").enqueue()
    assert app.jobs.count() == 0
    with app.using_store("eu"):
        assert (app.jobs.count(), app.stats.queue_depth().rows[0].depth) == (1, 1)
        app.control.pause("queue", "default", reason="repairs")
    assert app.control.pauses() == []
    assert len(app.at_store("eu").control.pauses()) == 1
    with pytest.raises(BadSettings, match="no store named 'nowhere'"):
        app.using_store("nowhere")
    with pytest.raises(BadSettings, match="no store named 'nowhere'"):
        app.at_store("nowhere")


def test_api_keys_belong_to_the_whole_app(app: App) -> None:
    with app.using_store("eu"):
        app.keys.create("ci", role="operator")
    assert [key.name for key in app.keys.list()] == ["ci"]
    assert [key.name for key in app.at_store("us").keys.list()] == ["ci"]


def test_override_replaces_the_stores_of_at_store_too(app: App) -> None:
    @app.task
    def plain() -> None: ...

    view = app.at_store("eu")
    with app.override("memory://"):
        view.enqueue(plain.name)
        assert view.jobs.count() == 1
    assert view.jobs.count() == 0


# Schedules, definitions and limits -----------------------------------------------------------------------------------------


def test_declared_schedules_land_in_the_store_of_their_task(app: App) -> None:
    clock = app.clock
    assert isinstance(clock, ManualClock)

    @app.task(store="us")
    def placed() -> None: ...

    @app.task
    def plain() -> None: ...

    app.schedule(placed, Every("1m"), key="placed")
    app.schedule(plain, Every("1m"), key="chosen", store="eu")
    app.schedule(plain, Every("1m"), key="routed", tenant="acme")
    app.schedule(plain, Every("1m"), key="plain")
    done = app.reconcile()
    assert sorted(done.added) == ["chosen", "placed", "plain", "routed"]
    keys = {
        name: {one.key for one in app.at_store(name).schedules.list(tenant="*")} for name in app.live_stores
    }
    assert keys == {"default": {"plain"}, "eu": {"chosen", "routed"}, "us": {"placed"}}
    assert app.reconcile().unchanged == 4
    clock.advance(timedelta(minutes=1))
    drain(app)
    counts = {name: app.at_store(name).jobs.count(tenant="*") for name in app.live_stores}
    assert counts == {"default": 1, "eu": 2, "us": 1}


def test_a_schedule_added_at_run_time_lands_in_the_store_of_its_task(app: App) -> None:
    @app.task(store="us")
    def placed() -> None: ...

    schedule = app.schedules.add(placed, Every("1h"), "hourly")
    assert [one.key for one in app.at_store("us").schedules.list()] == ["hourly"]
    assert app.schedules.list() == []
    assert schedule.key == "hourly"
    app.schedules.add(placed, Every("1h"), "elsewhere", store="eu")
    assert [one.key for one in app.at_store("eu").schedules.list()] == ["elsewhere"]


def test_a_definition_lands_in_the_store_of_its_task(app: App) -> None:
    @app.task(store="us")
    def placed() -> None: ...

    app.definitions.save("report", placed)
    us = app.at_store("us")
    assert [one.key for one in us.definitions.list()] == ["report"]
    assert us.definitions.trigger("report").store_name == "us"
    app.definitions.save("report", placed, store="eu")
    assert [one.key for one in app.at_store("eu").definitions.list()] == ["report"]
    with app.using_store("us"):
        assert app.definitions.save("report", placed, owner="ann").version == 2


def test_limits_are_counted_in_each_store(app: App) -> None:
    @app.task(limits=[Limit(1, name="api")])
    def limited() -> None: ...

    for store in ("default", "eu"):
        limited.using(store=store).enqueue()
    app.declare_limits()
    for name in app.live_stores:
        assert [state.name for state in app.at_store(name).limits.list()] == ["api"]
    with app.using_store("eu"):
        app.limits.set("api", max=5)
    assert app.at_store("eu").limits.get("api").rule.max == 5
    assert app.limits.get("api").rule.max == 1


# Stores without a worker ---------------------------------------------------------------------------------------------------


def test_a_job_in_a_store_that_no_worker_serves_is_reported_everywhere(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def plain() -> None: ...

    with caplog.at_level(logging.WARNING, "tidemill.client"):
        job = plain.using(store="eu").enqueue()
        plain.using(store="eu").enqueue()
    (line,) = [record.getMessage() for record in caplog.records]
    assert "no living worker serves the store 'eu'" in line
    assert job.why()[0].text.startswith("No living worker serves the store 'eu'")
    (alert,) = [alert for alert in app.stats.alerts() if alert.code == "unserved_store"]
    assert (alert.subject, alert.severity) == ("eu", "critical")
    assert not [alert for alert in app.at_store("us").stats.alerts() if alert.subject == "eu"]


def test_a_store_that_does_not_answer_raises_an_alert_and_hides_no_other(app: App) -> None:
    app.stores["us"].close()
    (alert,) = [alert for alert in app.stats.alerts() if alert.code == "store_unavailable"]
    assert alert.subject == "us"
    metrics = app.stats.metrics()
    assert 'tidemill_store_up{store="us"} 0' in metrics
    assert 'tidemill_store_up{store="eu"} 1' in metrics
    assert 'tidemill_workers{liveness="alive",store="eu"} 0' in metrics


def test_an_app_with_one_store_checks_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "workers", lambda _self: pytest.fail("the workers were read"))
    with App("memory://") as app:
        app.task(name="plain")(lambda: None)
        assert app.enqueue("plain").store_name == "default"


# Embedded workers ----------------------------------------------------------------------------------------------------------


def test_an_embedded_worker_serves_every_live_store_and_divides_its_slots(app: App) -> None:
    with App(stores={"jobs": "memory://", "eu": "memory://", "archive": "memory://"}) as other:

        @other.task
        def plain(n: int) -> int:
            return n

        jobs = [plain.using(store=name).enqueue(n=at) for at, name in enumerate(("jobs", "eu"))]
        with other.worker(threads=5, concurrency=3) as worker:
            assert [job.result(10) for job in jobs] == [0, 1]
            assert isinstance(worker, WorkerGroup)
            assert set(worker.workers) == {"jobs", "eu"}
            assert worker.id == worker.workers["jobs"].id
            stats = worker.stats()
            assert stats is not None
            assert stats.done == 2
            slots = {name: other.at_store(name).store.workers()[0].concurrency for name in ("jobs", "eu")}
            assert slots == {"jobs": 2 + 3 + 1, "eu": 1 + 2 + 1}
        jobs = [plain.using(store=name).enqueue(n=at) for at, name in enumerate(("jobs", "eu"))]
        with other.worker(stores=["eu"]):
            assert jobs[1].result(10) == 1
            assert jobs[0].refresh().status == "pending"
        assert other.tick().processed == 1
        with pytest.raises(BadSettings, match="no store named 'nowhere'"):
            other.worker(stores="nowhere")
        with pytest.raises(BadSettings, match="number of processes"):
            other.worker(stores="eu=2")


def test_an_embedded_worker_of_one_store_is_the_plain_one() -> None:
    from tidemill.engine.embedded_worker import EmbeddedWorker

    with App("memory://") as app:
        assert type(app.worker()) is EmbeddedWorker


# Retention -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [False, True])
def test_each_store_archives_its_own_jobs_and_finds_them_again(tmp_path: Path, files: bool) -> None:
    stores = {"eu": f"sqlite:///{tmp_path}/eu.db", "us": f"sqlite:///{tmp_path}/us.db"}
    if files:
        stores["archive"] = f"file://{tmp_path}/archive"
    with App(stores=stores, migrate=True) as app:

        @app.task
        def work(name: str) -> str:
            return name

        jobs = {name: work.using(store=name).enqueue(name=name) for name in ("eu", "us")}
        drain(app)
        assert app.at_store("us").archive.run(older_than=0).archived == 1
        assert app.jobs.get(jobs["eu"].id).archived_at is None
        assert app.at_store("eu").archive.run(older_than=0).archived == 1
        for name, job in jobs.items():
            found = app.jobs.get(job.id)
            assert found.archived_at is not None
            assert (found.result(), found.store_name) == (name, name)
            with app.using_store(name):
                assert app.archive.get(job.id).id == job.id
        assert app.archive.restore([jobs["us"].id], store="us").restored == [jobs["us"].id]
        assert app.jobs.get(jobs["us"].id).archived_at is None
        assert app.archive.erase(ids=[jobs["eu"].id], store="eu").jobs == 1
        with pytest.raises(JobNotFound):
            app.jobs.get(jobs["eu"].id)


def test_workers_perform_the_retention_of_their_own_store(tmp_path: Path) -> None:
    stores = {"eu": f"sqlite:///{tmp_path}/eu.db", "us": f"sqlite:///{tmp_path}/us.db"}
    clock = ManualClock()
    with App(stores=stores, migrate=True, clock=clock) as app:

        @app.task
        def work() -> None: ...

        for name in stores:
            work.using(store=name).enqueue()
        drain(app)
        clock.advance(timedelta(days=31))
        left = {}
        for name in ("us", "eu"):
            duty = app.at_store(name).retention_duty()
            assert duty is not None
            duty.step()
            left[name] = {other: app.at_store(other).jobs.count() for other in stores}
        assert left == {"us": {"eu": 1, "us": 0}, "eu": {"eu": 0, "us": 0}}
