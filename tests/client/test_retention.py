"""Tests of retention: policies on a manual clock, tiers, background runs, and their traces."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.client.audit_kit import entries
from tests.client.retention_kit import bounded_bytes, live_rows
from tests.grounds import new_file, url_of

from tidemill import App, ArchivePolicy, Context, Retention
from tidemill.archive.duty import RetentionDuty, RetentionThread
from tidemill.archive.run import MOST_MISMATCHES
from tidemill.client.archive import Archive
from tidemill.client.core import client_of
from tidemill.clock import ManualClock
from tidemill.domain.archive_totals import LEASE
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivedJob, Selection, Selector
from tidemill.engine.duties import FoldEnds, Sweep
from tidemill.errors import BadSettings, JobNotFound, PermanentError, StoreUnavailable
from tidemill.ids import new_id
from tidemill.tasks.events import Event

HOUR, DAY = timedelta(hours=1), timedelta(days=1)

Make = Callable[..., App]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """Create apps on one kind of store with a manual clock, and close them."""
    apps: list[App] = []

    def made(retention: Any = None, **stores: str) -> App:
        url = url_of(request.param, tmp_path, request)
        settings = {} if retention is None else {"retention": retention}
        app = App(stores={"default": url, **stores}, clock=ManualClock(), migrate=True, **settings)
        apps.append(app)
        declare(app)
        return app

    yield made
    for app in apps:
        app.close()


def declare(app: App) -> None:
    """Declare tasks that complete, and one that fails."""
    for name in ("mail", "report.daily", "metrics.count", "compliance.check"):
        app.task(name=name)(lambda: None)

    @app.task(name="fail", retry=None)
    def fail() -> None:
        raise PermanentError("no")


def work(app: App, *tasks: str) -> list[str]:
    """Run one job of each task to its end, a second after each other."""
    ids = []
    for task in tasks:
        ids.append(str(app.enqueue(task).id))
        app.testing().drain()
        pass_time(app, timedelta(seconds=1))
    return ids


def pass_time(app: App, span: timedelta) -> None:
    clock = app.clock
    assert isinstance(clock, ManualClock)
    clock.advance(span)


def tier_of(app: App, id: str, *stores: str) -> str:
    """The tier of a job, which is in exactly one place; with the store's name unless that is the archive."""
    found = ["live"] * len(app.store.get([UUID(id)], tenant=ALL_TENANTS))
    for name in ("archive", *stores):
        stored = client_of(app).place(name).get([UUID(id)], tenant=ALL_TENANTS)
        found += [document.tier if name == "archive" else f"{name}/{document.tier}" for document in stored]
    assert len(found) == 1, found
    return found[0]


def tiers(app: App, ids: Sequence[str], *stores: str) -> list[str]:
    """Run retention once, and return the tier of each job."""
    app.archive.run()
    return [tier_of(app, id, *stores) for id in ids]


def test_every_end_moves_to_the_archive_after_thirty_days_by_default(make: Make) -> None:
    app = make()
    ids = work(app, "mail", "fail")
    pass_time(app, 30 * DAY - HOUR)
    assert tiers(app, ids) == ["live", "live"]
    pass_time(app, HOUR)
    assert tiers(app, ids) == ["archive", "archive"]


def test_jobs_move_from_hot_to_warm_to_cold(make: Make) -> None:
    """The multi-tier example: completed to warm after a day, warm to cold after a week, failed to the archive."""
    app = make(
        Retention(
            use_defaults=False,
            policies=[
                ArchivePolicy("hot-to-warm", ["completed"], max_age="24h", tier="warm"),
                ArchivePolicy("warm-to-cold", from_tier="warm", max_age="168h", tier="cold"),
                ArchivePolicy("failed", ["failed", "timed_out"], max_age="72h", max_count=1000),
                ArchivePolicy("dead", ["dead_lettered"], max_age="720h"),
            ],
        )
    )
    ids = work(app, "mail", "fail")
    pass_time(app, 23 * HOUR)
    assert tiers(app, ids) == ["live", "live"]
    assert explained(app, ids[0])[-1].startswith("it moves to tier warm of store archive on ")
    pass_time(app, HOUR)
    assert tiers(app, ids) == ["warm", "live"]
    assert explained(app, ids[0]) == [
        f"mail job {ids[0]} of tenant default is completed in tier warm; it ended {when(app, ids[0])}",
        "  - hot-to-warm   reads from tier live",
        "  - failed        reads from tier live",
        "  - dead          reads from tier live",
        "  * warm-to-cold  applies: is for all ended jobs",
        f"it moves to tier cold of store archive on {when(app, ids[0], 7 * DAY)}, in 5 days",
    ]
    pass_time(app, 48 * HOUR)
    assert tiers(app, ids) == ["warm", "archive"]
    pass_time(app, 96 * HOUR)
    assert tiers(app, ids) == ["cold", "archive"]
    assert explained(app, ids[0])[-1] == "it stays in tier cold: no policy moves it"
    assert app.jobs.get(ids[0]).archived_at is not None
    copy = app.archive.get(ids[0])
    assert (copy.sound, copy.policy, copy.tier) == (True, "warm-to-cold", "cold")


def test_a_tier_may_be_in_another_store(make: Make, tmp_path: Path) -> None:
    policies = [
        ArchivePolicy("warm", max_age="1d", tier="warm", to="warm"),
        ArchivePolicy("cold", max_age="7d", from_tier="warm", tier="cold", to="cold"),
        ArchivePolicy("gone", max_age="30d", from_tier="cold", to=None),
    ]
    others = {"warm": new_file(tmp_path, "warm.db"), "cold": new_file(tmp_path, "cold.db")}
    app = make(Retention(use_defaults=False, policies=policies), **others)
    ids = work(app, "mail", "fail")
    pass_time(app, DAY)
    assert tiers(app, ids, "warm", "cold") == ["warm/warm"] * 2
    pass_time(app, 6 * DAY)
    assert tiers(app, ids, "warm", "cold") == ["cold/cold"] * 2
    pass_time(app, 23 * DAY)
    done = app.archive.run()
    assert {run.policy: run.archived for run in done.policies} == {"warm": 0, "cold": 0, "gone": 2}
    assert app.stores["cold"].archived([UUID(id) for id in ids], tenant=ALL_TENANTS) == []
    assert [entry.action for entry in entries(app) if entry.action.startswith("jobs.")] == [
        "jobs.archived", "jobs.archived", "jobs.purged",
    ]  # fmt: skip


def test_policies_per_task_keep_compliance_jobs_a_year_and_metrics_an_hour(make: Make) -> None:
    app = make(
        [
            ArchivePolicy("metrics", tasks=["metrics.*"], max_age="1h"),
            ArchivePolicy("compliance", tasks=["compliance.*"], max_age="8760h", tier="compliance"),
        ]
    )
    mail, metrics, compliance = ids = work(app, "mail", "metrics.count", "compliance.check")
    pass_time(app, HOUR)
    assert tiers(app, ids) == ["live", "archive", "live"]
    pass_time(app, 31 * DAY)
    assert tiers(app, ids) == ["archive", "archive", "live"]
    assert explained(app, compliance) == [
        f"compliance.check job {compliance} of tenant default is completed in tier live; it ended {when(app, compliance)}",
        "  - metrics        is for task metrics.*, not compliance.check",
        "  * compliance     applies: matches a task pattern",
        "  - completed      compliance is more specific: it matches a task pattern, this one is the default for its states",
        "  - failed         is for state failed, timed_out, not completed",
        "  - cancelled      is for state cancelled, not completed",
        "  - dead_lettered  is for state dead_lettered, not completed",
        f"it moves to tier compliance of store archive on {when(app, compliance, 365 * DAY)}, in 333 days",
    ]
    assert explained(app, mail)[-1] == "it stays in tier archive: no policy moves it"
    pass_time(app, 334 * DAY)
    assert explained(app, compliance)[-1].startswith(
        "it moves to tier compliance of store archive with the next run"
    )
    assert tiers(app, ids) == ["archive", "archive", "compliance"]
    assert app.archive.get(metrics).policy == "metrics"


def test_a_policy_keeps_the_newest_jobs_and_moves_the_rest_at_once(make: Make) -> None:
    app = make(Retention(use_defaults=False, policies=[ArchivePolicy("few", max_age="1d", max_count=2)]))
    ids = work(app, *["mail"] * 4)
    assert explained(app, ids[0])[-1].endswith("because 2 newer jobs of this policy have ended")
    assert explained(app, ids[3])[-1].endswith("or earlier once 2 newer jobs of this policy have ended")
    assert tiers(app, ids) == ["archive", "archive", "live", "live"]
    pass_time(app, DAY)
    assert tiers(app, ids) == ["archive"] * 4


def test_only_the_jobs_of_a_policy_are_counted(make: Make) -> None:
    app = make([ArchivePolicy("reports", tasks=["report.*"], max_age=None, max_count=1)])
    ids = work(app, "report.daily", "mail", "report.daily", "mail", "mail")
    assert tiers(app, ids) == ["archive", "live", "live", "live", "live"]


def test_a_policy_of_a_tenant_takes_precedence(make: Make) -> None:
    app = make([ArchivePolicy("acme", tenants=["acme"], max_age="90d")])
    with app.tenant("acme"):
        (theirs,) = work(app, "mail")
    (ours,) = work(app, "mail")
    pass_time(app, 31 * DAY)
    app.archive.run()
    assert [tier_of(app, id) for id in (theirs, ours)] == ["live", "archive"]
    assert app.archive.explain(theirs, tenant="acme").policy == "acme"
    with pytest.raises(JobNotFound):
        app.archive.explain(theirs, tenant="other")
    with pytest.raises(BadSettings, match="'nonsense' is not a job's id; give all 36 characters of it"):
        app.archive.explain("nonsense")


def test_to_none_deletes_jobs_without_a_copy(make: Make) -> None:
    app = make(Retention(use_defaults=False, policies=[ArchivePolicy("gone", max_age="1h", to=None)]))
    (id,) = work(app, "mail")
    pass_time(app, HOUR)
    assert app.archive.run().archived == 1
    with pytest.raises(JobNotFound):
        app.jobs.get(id)


def test_a_copying_policy_copies_each_job_once_and_leaves_it(make: Make, tmp_path: Path) -> None:
    copy = ArchivePolicy("copy", max_age="1h", to="copies", tier="copy", delete_from_source=False)
    app = make([copy], copies=new_file(tmp_path, "copies.db"))
    ids = work(app, "mail", "fail")
    pass_time(app, HOUR)
    for expected in (2, 0):
        done = {run.policy: run.archived for run in app.archive.run().policies}
        assert done["copy"] == expected
    later = work(app, "mail")
    pass_time(app, HOUR)
    assert {run.policy: run.archived for run in app.archive.run().policies}["copy"] == 1
    assert app.jobs.count() == 3
    copies = app.stores["copies"].archived([UUID(id) for id in ids + later], tenant=ALL_TENANTS)
    assert [(each.tier, each.sound) for each in copies] == [("copy", True)] * 3
    pass_time(app, 31 * DAY)
    assert app.archive.run().archived == 3
    assert app.jobs.count() == 0


def test_older_than_changes_no_policy_of_an_archive_tier(make: Make) -> None:
    policies = [ArchivePolicy("all"), ArchivePolicy("gone", from_tier="archive", to=None, max_age="365d")]
    app = make(Retention(use_defaults=False, policies=policies))
    (id,) = work(app, "mail")
    app.archive.run(older_than=0)
    assert tier_of(app, id) == "archive"


def explained(app: App, id: str) -> list[str]:
    return app.archive.explain(id).lines(app.clock.now())


def when(app: App, id: str, later: timedelta = timedelta(0)) -> str:
    ended = app.jobs.get(id).finished_at
    assert ended is not None
    return (ended + later).strftime("%Y-%m-%d %H:%M:%S UTC")


# Failures ----------------------------------------------------------------------------------------------------------------


def test_a_failing_policy_of_a_tier_does_not_stop_the_others(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = [ArchivePolicy("away", ["failed"], max_age=0, to="away"), ArchivePolicy("here", max_age=0)]
    app = make(Retention(use_defaults=False, policies=policies), away=new_file(tmp_path, "away.db"))
    ids = work(app, "mail", "fail")

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(app.stores["away"], "put_archive", refuse)
        done = app.archive.run()
    assert {run.policy: (run.archived, run.error) for run in done.policies} == {
        "away": (0, "store_unavailable"),
        "here": (1, None),
    }
    assert tiers(app, ids, "away") == ["archive", "away/archive"]


@contextmanager
def damaged(store: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside the block, a store writes other documents than it was given."""
    put = store.put_archive

    def other(documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        put([replace(document, document="{}") for document in documents], now=now)

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_archive", other)
        yield


def test_a_copy_that_differs_is_logged_alerted_and_deletes_nothing(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = make()
    ids = work(app, "mail", "mail")
    pass_time(app, 31 * DAY)
    with damaged(app.store, monkeypatch), caplog.at_level(logging.ERROR):
        done = app.archive.run()
    assert (done.archived, done.failed, done.more) == (0, 2, True)
    assert "2 copies differ from what was written; their batch was kept" in caplog.text
    assert {str(job.id) for job in app.jobs.list().items} == set(ids)
    (alert,) = [alert for alert in app.stats.alerts() if alert.code == "archive_mismatch"]
    assert (alert.subject, alert.severity.value) == ("completed", "critical")
    assert app.archive.status().policies[0].mismatch_at is not None
    app.archive.run()
    assert [alert for alert in app.stats.alerts() if alert.code == "archive_mismatch"] == []
    assert app.jobs.count() == 0


def test_a_tier_keeps_its_document_if_the_new_one_differs(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = [
        ArchivePolicy("warm", max_age=0, tier="warm"),
        ArchivePolicy("cold", max_age="1d", from_tier="warm", tier="cold"),
    ]
    app = make(Retention(use_defaults=False, policies=policies))
    (id,) = work(app, "mail")
    assert tiers(app, [id]) == ["warm"]
    pass_time(app, DAY)
    with damaged(app.store, monkeypatch):
        assert app.archive.run().failed == 1
    copy = app.archive.get(id)
    assert (copy.tier, copy.sound) == ("warm", True)
    assert tiers(app, [id]) == ["cold"]


def test_a_policy_ends_its_run_after_some_wrong_batches(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = ArchivePolicy("all", max_age=0, batch=1)
    app = make(Retention(use_defaults=False, policies=[policy]))
    work(app, *["mail"] * (MOST_MISMATCHES + 1))
    with damaged(app.store, monkeypatch):
        assert app.archive.run().failed == MOST_MISMATCHES
    assert app.archive.run().archived == MOST_MISMATCHES + 1


# Traces ------------------------------------------------------------------------------------------------------------------


def test_each_job_that_moves_has_an_event(make: Make) -> None:
    app = make()
    seen: list[Event] = []
    app.on("job.archived", seen.append)
    (id,) = work(app, "mail")
    ended = app.jobs.get(id).finished_at
    assert ended is not None
    pass_time(app, 31 * DAY)
    app.archive.run()
    (event,) = seen
    assert (str(event.job_id), event.task, event.tenant, event.state) == (id, "mail", "default", "completed")
    assert event.data == {
        "policy": "completed", "from_tier": "live", "to": "archive", "tier": "archive", "archived_at": app.clock.now(),
        "age": app.clock.now() - ended,
    }  # fmt: skip


def test_the_status_names_runs_policies_and_overdue_jobs(make: Make) -> None:
    app = make([ArchivePolicy("reports", tasks=["report.*"], comment="short")])
    status = app.archive.status()
    assert (status.enabled, status.interval, status.last, status.overdue) == (True, HOUR, None, False)
    assert [policy.name for policy in status.policies if not policy.default] == ["reports"]
    work(app, "mail")
    pass_time(app, 30 * DAY + HOUR)
    assert not app.archive.status().overdue
    pass_time(app, 2 * HOUR)
    status = app.archive.status()
    assert status.overdue
    assert [policy.name for policy in status.policies if policy.overdue_since] == ["completed"]
    assert status.oldest_ended_at is not None
    app.archive.run()
    status = app.archive.status()
    assert not status.overdue
    assert status.oldest_ended_at is None
    assert status.last is not None
    assert (status.last.archived, status.next_at) == (1, status.last.at + HOUR)
    assert {policy.name: policy.archived for policy in status.policies if policy.archived} == {"completed": 1}


def test_every_method_has_an_async_variant(make: Make) -> None:
    for name in ("status", "explain"):
        assert inspect.iscoroutinefunction(getattr(Archive, f"a{name}"))
    app = make()
    (id,) = work(app, "mail")
    assert asyncio.run(app.archive.aexplain(id)).policy == "completed"
    assert asyncio.run(app.archive.astatus()).enabled


# Background runs ---------------------------------------------------------------------------------------------------------


def test_a_duty_runs_once_per_interval(make: Make) -> None:
    app = make()
    duty = app.archive.duty()
    assert duty.step() == 300.0  # a first run at once, then a look at the settings every five minutes
    assert len(app.archive.status().runs) == 1
    pass_time(app, timedelta(minutes=59))
    assert duty.step() == 60.0
    pass_time(app, timedelta(minutes=1))
    duty.step()
    assert len(app.archive.status().runs) == 2


def test_retention_can_be_changed_at_run_time(make: Make) -> None:
    app = make(Retention(enabled=False))
    duty = app.archive.duty()
    duty.step()
    assert app.archive.status().last is None
    app.control.set("retention.enabled", True)
    app.control.set("retention.interval", 60)
    duty.step()
    assert app.archive.status().interval == timedelta(minutes=1)
    assert app.archive.status().last is not None
    with pytest.raises(BadSettings, match="give a bool"):
        app.control.set("retention.enabled", "yes")
    with pytest.raises(BadSettings, match="1 second or more"):
        app.control.set("retention.interval", 0)


def test_policies_can_be_changed_at_run_time(make: Make) -> None:
    app = make()
    duty = app.archive.duty()
    (done,), (failed,) = work(app, "mail"), work(app, "fail")
    app.control.set("retention.policies", {"completed": {"max_age": "90d"}})
    ended_at = app.jobs.get(done).finished_at
    assert ended_at is not None
    assert app.archive.explain(done).due_at == ended_at + 90 * DAY
    pass_time(app, 31 * DAY)
    duty.step()
    assert app.jobs.get(done).archived_at is None
    assert app.jobs.get(failed).archived_at is not None
    app.control.set("retention.use_defaults", False)
    pass_time(app, 60 * DAY)
    duty.step()
    assert app.archive.policies == ()
    assert app.jobs.get(done).archived_at is None
    app.control.unset("retention.use_defaults")
    duty.step()
    pass_time(app, HOUR)
    duty.step()
    assert app.jobs.get(done).archived_at is not None
    with pytest.raises(BadSettings, match="there is no policy 'complete'; there are completed, failed"):
        app.control.set("retention.policies", {"complete": {}})


def test_a_duty_waits_while_another_process_archives(make: Make) -> None:
    app = make()
    lease = app.store.acquire(LEASE, new_id(), ttl=HOUR, now=app.clock.now())
    assert lease is not None
    assert app.archive.duty().step() == 60.0


def test_a_run_pauses_between_batches_and_ends_when_the_worker_stops(make: Make) -> None:
    policy = ArchivePolicy("all", max_age=0, batch=2)
    app = make(Retention(use_defaults=False, policies=[policy], pace=0.25))
    work(app, *["mail"] * 6)
    pauses: list[float] = []

    def stop(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 2

    assert app.archive.duty().step(stop) == 0.0  # the rest is due at once
    assert len(pauses) == 2
    assert app.jobs.count() == 2
    app.archive.duty().step()
    assert app.jobs.count() == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_live_tables_level_off_under_a_steady_load(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """A hundred and twenty days without configuration: the live tables hold what ended in the last thirty.

    The file levels off after sixty days, for which failures are counted.
    """
    url, file = url_of(kind, tmp_path, request), tmp_path / "jobs.db"
    stores = {"default": url, "archive": new_file(tmp_path, "archive.db")}
    with App(stores=stores, clock=ManualClock()) as app:
        declare(app)

        @app.task(name="flaky", retry=2)
        def flaky(ctx: Context) -> str:
            ctx.log("working")
            if ctx.attempt == 1:
                raise RuntimeError("once")
            return "x" * 2_000

        fold, sweep = FoldEnds(app.store), Sweep(app.store)
        rows: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for day in range(120):
            for name in ("mail", "mail", "fail", "flaky", "flaky", "flaky"):
                app.bound_task(name).using(tags=["t"], correlation_id=str(day)).enqueue()
            app.testing().drain()
            pass_time(app, HOUR)
            app.testing().drain()
            pass_time(app, DAY - HOUR)
            app.archive.duty().step()
            # The lease of every worker has ended. One of sixty runs of fold drops old failures.
            app.store.retire([worker.id for worker in app.store.workers()])
            for _ in range(6):
                fold()
            sweep()
            if day in (20, 45, 65, 119):
                rows[day] = live_rows(app)
                sizes[day] = bounded_bytes(file) if kind == "sqlite" else 0
        assert app.jobs.count(tenant="*") == 29 * 6 + 3  # those that were retried ended an hour later
        assert rows[20] < rows[45] == rows[65] == rows[119]
        if kind == "sqlite":
            assert sizes[20] < sizes[119] <= sizes[65] * 1.1
        record_property("rows", rows)
        record_property("bytes", sizes)
        kept = app.stores["archive"].archived_due(Selection(Selector(), "archive", limit=1000))
        assert len(kept) == 120 * 6 - 29 * 6 - 3
        assert all(document.sound for document in kept)


def test_a_worker_archives_by_itself(tmp_path: Path) -> None:
    done = threading.Event()
    policy = ArchivePolicy("all", max_age=0)
    settings = Retention(interval="1s", use_defaults=False, policies=[policy])
    with App(new_file(tmp_path), retention=settings) as app:
        declare(app)
        app.on("job.archived", lambda _: done.set())
        job = app.enqueue("mail")
        with app.worker():
            assert done.wait(30)
        assert app.jobs.get(job.id).archived_at is not None
        assert "tidemill:retention" in {entry.who for entry in entries(app)}


def test_a_worker_of_a_memory_store_deletes_jobs_unless_retention_is_given() -> None:
    with App("memory://") as plain, App("memory://", retention=[]) as chosen:
        assert plain.retention_duty() is None
        assert chosen.retention_duty() is not None


def test_a_tick_archives_after_the_jobs(tmp_path: Path) -> None:
    policy = ArchivePolicy("all", max_age=0)
    settings = Retention(use_defaults=False, policies=[policy])
    with App(new_file(tmp_path), retention=settings) as app:
        declare(app)
        app.enqueue("mail")
        assert app.tick(10).processed == 1
        assert app.jobs.count() == 0


def test_an_unexpected_error_does_not_end_the_thread(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = make(Retention(interval=1))
    reached = threading.Event()

    def fail(*_: object) -> float:
        reached.set()
        raise RuntimeError("boom")

    monkeypatch.setattr(RetentionDuty, "step", fail)
    thread = RetentionThread(app.archive.duty())
    thread.start()
    assert reached.wait(10)
    thread.close()
    assert "unexpected error in the archive run" in caplog.text
