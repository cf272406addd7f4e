"""Tests of apps with shards: where tenants are placed, and which shard a call goes to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.shards_kit import away, drain, sharded_app, urls_of

from tidemill import App, Every, Job, ManualClock, Shard
from tidemill.client.core import client_of
from tidemill.domain.decide import Action, move
from tidemill.domain.tenant_placement import TenantPlacement
from tidemill.errors import BadSettings, CrossShard, JobNotFound, StoreUnavailable, UsageError
from tidemill.shards.routes import VERBS
from tidemill.stores.base import Store

TENANTS = ("eu-acme", "us-blue", "eu-cyan")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with sharded_app(urls_of(request.param, tmp_path, request)) as made:

        @made.task(name="double")
        def double(number: int = 1) -> int:
            return 2 * number

        @made.task(name="fail", max_retries=0)
        def fail() -> None:
            raise ValueError("broken")

        yield made


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with sharded_app(urls_of("memory", tmp_path, request), clock=ManualClock()) as made:

        @made.task(name="double")
        def double(number: int = 1) -> int:
            return 2 * number

        yield made


def enqueue(app: App, tenant: str, number: int = 1) -> Job[Any]:
    with app.tenant(tenant):
        return app.enqueue("double", number=number)


# Placement ---------------------------------------------------------------------------------------------------------------


def test_the_jobs_of_a_tenant_are_in_its_shard(app: App) -> None:
    for tenant in TENANTS:
        with app.tenant(tenant):
            job = app.enqueue("double", number=4)
            assert job.store_name == tenant[:2]
            assert [row.id for row in app.stores[tenant[:2]].get([job.id], tenant=tenant)] == [job.id]
    assert app.enqueue("double").store_name == "default", "the app's own tenant is at home"
    assert [(row.tenant, row.shard) for row in app.shards.placements()] == [
        ("eu-acme", "eu"), ("eu-cyan", "eu"), ("us-blue", "us"),
    ]  # fmt: skip


def test_a_job_of_a_shard_runs_and_its_handle_has_the_result(app: App) -> None:
    with app.tenant("us-blue"):
        job = app.enqueue("double", number=21)
    drain(app)
    assert job.result(timeout=5) == 42
    assert app.jobs.get(job.id, tenant="*").store_name == "us"
    with app.tenant("us-blue"):
        assert app.jobs.get(job.id).value == 42
    with app.tenant("eu-acme"), pytest.raises(JobNotFound):
        app.jobs.get(job.id)


def test_a_placement_is_never_computed_again(app: App) -> None:
    enqueue(app, "eu-acme")
    app.stores["default"].replace([TenantPlacement("eu-acme", "us", epoch=1)])
    shards = client_of(app).placement.shards
    assert shards is not None
    shards.forget("eu-acme")
    assert enqueue(app, "eu-acme").store_name == "us"


def test_new_tenants_are_divided_by_weight_among_the_open_shards() -> None:
    shards: dict[str, str | Store | Shard | None] = {
        "a": Shard("memory://", weight=3), "b": "memory://", "c": Shard("memory://", open=False)
    }  # fmt: skip
    with App("memory://", shards=shards) as app:
        names = [app.shards.place(f"tenant-{number}").shard for number in range(400)]
    assert set(names) == {"a", "b"}
    assert 0.68 < names.count("a") / 400 < 0.82


def test_a_tenant_that_has_jobs_at_home_stays_there(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'home.db'}"
    with App(url, migrate=True) as before:
        before.task(name="double")(lambda number=0: None)
        with before.tenant("old"):
            before.enqueue("double")
    with App(url, shards={"eu": f"sqlite:///{tmp_path / 'eu.db'}"}, migrate=True) as app:
        with app.tenant("old"):
            assert app.enqueue("double").store_name == "default"
        with app.tenant("new"):
            assert app.enqueue("double").store_name == "eu"


def test_a_shard_may_be_a_store_of_the_app() -> None:
    with App("memory://", shards={"default": None, "b": "memory://"}) as app:
        assert {app.shards.place(f"tenant-{number}").shard for number in range(20)} == {"default", "b"}


def test_two_apps_that_place_a_tenant_at_once_agree(tmp_path: Path) -> None:
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("home", "eu", "us")}
    with sharded_app(urls, place=lambda _: "eu") as one, sharded_app(urls, place=lambda _: "us") as other:
        assert one.shards.place("acme").shard == "eu"
        assert other.shards.place("acme").shard == "eu"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shards": {}}, "shards is empty"),
        ({"shards": {"a": Shard("memory://", weight=0)}}, "weight 0"),
        ({"shards": {"default": "memory://"}}, "has a store of this name already"),
        ({"shards": {"eu": None}}, "has no URL"),
        ({"shards": {"archive-1": "memory://"}}, "archived jobs"),
        ({"shards": {"eu": "memory://"}, "store_for": lambda _: "eu"}, "store_for and shards"),
        ({"place": lambda _: "eu"}, "there are no shards"),
        ({"shards": {"eu": "memory://"}, "place": "eu"}, "give a function"),
    ],
)
def test_impossible_shards_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        App("memory://", **settings)


def test_a_place_function_that_names_no_shard_is_refused() -> None:
    with App("memory://", shards={"eu": "memory://"}, place=lambda _: "mars") as app:
        with pytest.raises(BadSettings, match="place returned 'mars' for tenant acme; there are default, eu"):
            app.shards.place("acme")
        with pytest.raises(BadSettings, match="there is no shard named 'us'"):
            app.shards.place("acme", "us")


def test_an_app_without_shards_raises_an_error_about_them() -> None:
    with App("memory://") as app, pytest.raises(BadSettings, match="this app has no shards"):
        app.shards.list()


# Calls of one tenant -----------------------------------------------------------------------------------------------------


def test_a_call_that_names_another_shard_is_refused(memory: App) -> None:
    task = memory.bound_task("double")
    with pytest.raises(
        CrossShard, match="tenant 'eu-acme' is placed in the shard 'eu', and the call names 'us'"
    ):
        task.using(tenant="eu-acme", store="us").enqueue()
    with memory.using_store("us"), pytest.raises(CrossShard):
        enqueue(memory, "eu-acme")
    assert task.using(tenant="eu-acme", store="eu").enqueue().store_name == "eu"
    assert memory.jobs.count(tenant="*") == 1


def test_a_transaction_that_reaches_a_second_shard_is_refused(memory: App) -> None:
    store, (one, other) = memory.store, [enqueue(memory, tenant) for tenant in ("eu-acme", "us-blue")]

    def cancel_both() -> None:
        with store.transaction():
            store.move([move(one.row, Action.CANCEL, "no")])
            store.move([move(other.row, Action.CANCEL, "no")])

    with pytest.raises(CrossShard, match="belongs to the shard 'eu', and the call goes to 'us'"):
        cancel_both()
    assert [job.status for job in (one.refresh(), other.refresh())] == ["pending", "pending"]


def test_a_transaction_of_one_shard_commits_and_rolls_back(app: App) -> None:
    job = enqueue(app, "eu-acme")
    job.cancel("not needed")
    assert job.refresh().status == "cancelled"
    (record,) = app.audit.list(tenant="eu-acme", action="job.cancelled")
    assert record.entry.subject == f"job:{job.id}"
    assert app.stores["default"].audit(tenant="eu-acme") == []


def test_schedules_and_definitions_are_in_the_shard_of_their_tenant(app: App) -> None:
    app.schedules.add("double", Every("1h"), "hourly", tenant="us-blue")
    definition = app.definitions.save("nightly", "double", args={"number": 3}, tenant="eu-acme")
    assert [row.key for row in app.stores["us"].schedules(tenant="us-blue")] == ["hourly"]
    assert [row.key for row in app.stores["eu"].definitions(tenant="eu-acme")] == [definition.key]
    assert app.schedules.get("hourly", tenant="us-blue").key == "hourly"
    app.schedules.pause("hourly", tenant="us-blue")
    assert [schedule.enabled for schedule in app.schedules.list(tenant="*")] == [False]


def test_a_declared_schedule_is_stored_in_the_shard_of_its_tenant(memory: App) -> None:
    memory.schedule("double", Every("1h"), "own")
    memory.schedule("double", Every("1h"), "theirs", tenant="us-blue")
    memory.reconcile()
    assert [row.key for row in memory.stores["default"].schedules(tenant="*")] == ["own"]
    assert [row.key for row in memory.stores["us"].schedules(tenant="*")] == ["theirs"]


def test_an_enqueue_in_a_job_goes_to_the_shard_of_its_tenant(memory: App) -> None:
    jobs = []

    @memory.task
    def parent() -> None:
        jobs.append(memory.enqueue("double", number=1))
        jobs.append(memory.bound_task("double").using(tenant="us-blue").enqueue(number=2))

    with memory.tenant("eu-acme"):
        parent.enqueue()
    drain(memory)
    assert [(job.tenant, job.store_name) for job in jobs] == [("eu-acme", "eu"), ("us-blue", "us")]
    assert {job.refresh().status for job in jobs} == {"completed"}


def test_flows_signals_and_batches_are_in_the_shard_of_their_tenant(app: App) -> None:
    double = app.bound_task("double")
    with app.tenant("us-blue"):
        flow = app.flow("two")
        first = flow.add(double, number=1)
        flow.add(double, number=2).after(first)
        run = flow.start()
        with app.batch("many") as batch:
            double.enqueue(number=5)
    drain(app)
    with app.tenant("us-blue"):
        assert app.flows.get(run.id).status == "completed"
        assert [found.id for found in app.flows.list()] == [run.id]
        assert batch.refresh().total == 1
    assert [row.id for row in app.stores["us"].flow([run.id], tenant="us-blue")] == [run.id]


# All tenants -------------------------------------------------------------------------------------------------------------


def test_lists_and_counts_of_all_tenants_cover_all_shards(app: App) -> None:
    jobs = [enqueue(app, tenant, number) for number in range(5) for tenant in TENANTS]
    own = app.enqueue("double")
    newest = sorted((*(job.id for job in jobs), own.id), reverse=True)
    seen, cursor = [], None
    while True:
        page = app.jobs.list(tenant="*", limit=4, cursor=cursor)
        seen += [job.id for job in page.items]
        assert page.missing == ()
        cursor = page.next
        if cursor is None:
            break
    assert seen == newest
    assert [job.id for job in app.jobs.stream(tenant="*")] == newest[::-1]
    assert app.jobs.count(tenant="*") == 16
    assert app.jobs.count(tenant="eu-acme") == 5
    assert app.jobs.count(tenant="*", status="pending") == 16


def test_statistics_of_all_tenants_are_sums_over_all_shards(app: App) -> None:
    for tenant in (*TENANTS, "default"):
        enqueue(app, tenant)
        with app.tenant(tenant):
            app.enqueue("fail")
    assert {row.queue: row.depth for row in app.stats.queue_depth(tenant="*")} == {"default": 8}
    drain(app)
    counts = {row.status: row.jobs for row in app.stats.by_status(tenant="*")}
    assert counts == {"completed": 4, "failed": 4}
    assert [(row.task, row.failures) for row in app.stats.failures(tenant="*")] == [("fail", 4)]
    assert sorted(row.tenant for row in app.stats.tenants(tenant="*")) == ["default", *sorted(TENANTS)]
    steps = app.stats.throughput(tenant="*").rows
    assert sum(step.total for step in steps) == 8
    assert max(step.duration_p95 for step in steps if step.duration_p95 is not None).total_seconds() >= 0
    (group,) = app.stats.errors(tenant="*").rows
    assert (group.jobs, group.tenants) == (4, 4)
    assert app.stats.overview(tenant="*").ended == 8
    assert app.stats.health(tenant="*").failed == 4
    assert sum(sum(row.total) for row in app.stats.throughput_by("task", tenant="*").rows) == 8
    assert {state.name for state in app.control.tenants()} == {"default", *TENANTS}


def test_a_bulk_action_on_all_tenants_reaches_every_shard(app: App) -> None:
    for tenant in TENANTS:
        enqueue(app, tenant)
    done = app.jobs.cancel(tenant="*", task="double", reason="all of them")
    assert (done.done, done.skipped) == (3, 0)
    assert app.jobs.counts(tenant="*") == {"cancelled": 3}
    for tenant in TENANTS:
        shard = app.stores[tenant[:2]]
        assert "jobs.cancelled" in {record.entry.action for record in shard.audit(tenant="*")}


def test_store_wide_changes_are_made_in_every_store(app: App) -> None:
    app.control.pause("queue", "default", reason="maintenance")
    app.control.set_tenant("eu-acme", {"weight": 3})
    app.limits.set("task/double", 2)
    for store in app.stores.values():
        assert [pause.name for pause in store.pauses()] == ["default"]
        assert {setting.key for setting in store.settings()} == {"tenant/eu-acme"}
        assert [rule.name for rule in store.rules()] == ["task/double"]
    assert len(app.control.pauses()) == 1
    app.control.resume("queue", "default")
    assert all(store.pauses() == [] for store in app.stores.values())


# Outages -----------------------------------------------------------------------------------------------------------------


def test_a_shard_that_does_not_answer_is_named_and_delays_no_other(app: App) -> None:
    for tenant in TENANTS:
        enqueue(app, tenant)
    with away(app, "us"):
        page = app.jobs.list(tenant="*")
        assert (len(page.items), page.missing) == (2, ("us",))
        report = app.stats.by_status(tenant="*")
        assert ([row.jobs for row in report], report.missing) == ([2], ("us",))
        assert app.stats.health(tenant="*").missing == ("us",)
        assert enqueue(app, "eu-acme").store_name == "eu"
        with pytest.raises(StoreUnavailable):
            app.jobs.list(tenant="us-blue")
        assert {status.name: status.code for status in app.shards.list()}["us"] == "store_unavailable"


def test_a_job_that_may_be_in_a_shard_without_an_answer_is_not_called_missing(app: App) -> None:
    job = enqueue(app, "us-blue")
    with away(app, "us"), pytest.raises(StoreUnavailable, match=r"in none of the shards that answer.*: us"):
        app.jobs.get(job.id, tenant="*")


def test_tenants_with_a_cached_placement_still_work_while_the_home_store_is_away(memory: App) -> None:
    enqueue(memory, "eu-acme")
    with away(memory, "default"):
        assert isinstance(memory.clock, ManualClock)
        memory.clock.advance(60)
        assert enqueue(memory, "eu-acme").store_name == "eu"
        with pytest.raises(StoreUnavailable, match="the shard of tenant 'us-new' is unknown"):
            enqueue(memory, "us-new")


def test_a_new_process_reads_the_copies_of_the_shards_while_the_home_store_is_away(tmp_path: Path) -> None:
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("home", "eu", "us")}
    with sharded_app(urls) as app:
        app.task(name="double")(lambda number=0: None)
        enqueue(app, "us-blue", 0)
    with sharded_app(urls) as app:
        app.task(name="double")(lambda number=0: None)
        with away(app, "default"), app.tenant("us-blue"):
            assert app.enqueue("double").store_name == "us"


# The table of verbs ------------------------------------------------------------------------------------------------------

WORKER_VERBS = {
    "promote", "claim", "deal", "merge_failures", "drop_failures", "forget_tasks", "start", "report", "finish", "step", "steps_ahead", "held", "expired", "log", "save_checkpoints",
    "record_steps", "write_streams", "register", "beat", "heartbeats", "declare_gone", "retire", "drain", "pause_workers", "resume_workers", "scale", "sweep",
    "advance", "purge_fires", "redate", "change_breaker", "label", "forget_uses", "put_rules", "drop_rules",
    "put_settings", "drop_settings", "pause", "resume", "orders", "recount_joins", "still_unreachable", "drop_unreachable",
    "unreachable", "job_starts", "reacting", "drop_occurrences", "take_signal", "wake_receivers", "drop_events",
    "waiting_events", "settle_events", "delay_events", "open_alerts", "see_alerts", "recover_alerts", "drop_alerts",
    "fold_ends", "compact_rollups", "drop_rollups", "measure_depths", "put_depths", "compact_depths", "drop_depths", "put_archive", "forget",
    "remove_archived", "restore", "erase_archived", "scrub", "make_archive_months", "drop_archive_months",
    "add_archive_file", "remove_archive_files", "archive_files", "archive_entries", "search_archive_entries",
    "flow_documents", "empty_groups", "drop_flows", "put_archived_flow", "move_archived_flows",
    "erase_archived_flows", "put_blob", "orphan_blobs", "delete_blobs", "release_blobs", "drop_blobs", "sealed_rows",
    "reseal", "migrate", "outgoing", "receive", "withdraw", "forget_definitions", "outgoing_starts",
    "receive_starts",
}  # fmt: skip
"""Verbs that belong to one store: those of workers, duties and archive runs, and store-wide changes."""

OWN = {"transaction", "notify", "listen", "rest", "close"}


def test_every_verb_of_a_store_has_a_route_or_belongs_to_one_store() -> None:
    verbs = set(Store.__abstractmethods__)
    assert verbs - VERBS.keys() - WORKER_VERBS - OWN == set()
    assert VERBS.keys() & WORKER_VERBS == set()
    assert (VERBS.keys() | WORKER_VERBS) - verbs == set()


def test_a_verb_of_a_worker_needs_one_store(memory: App) -> None:
    with pytest.raises(UsageError, match=r"the verb promote belongs to one shard; use app\.at_store"):
        memory.store.promote(1)
