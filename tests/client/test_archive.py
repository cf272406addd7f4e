"""Tests of ``app.archive.run``."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.audit_kit import Broken, entries, no_audit

from tidemill import App, Retention
from tidemill.client.access import acting
from tidemill.client.archive import Archive
from tidemill.clock import ManualClock
from tidemill.domain.archive_totals import LEASE, MOST_POLICIES, PolicySums, read_sums
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, Selection, fingerprint
from tidemill.domain.states import JobState
from tidemill.errors import ArchiveRunning, BadSettings, LeaseLost, PermanentError, StoreUnavailable
from tidemill.ids import new_id

NOW = timedelta(0)


def work(app: App, good: int = 3, bad: int = 2) -> list[str]:
    """Run jobs to the end and return their ids, completed ones first."""
    if "good" not in app.registry.names():

        @app.task(name="good")
        def _good(number: int) -> int:
            return number

        @app.task(name="bad")
        def _bad(number: int) -> None:
            raise PermanentError(f"number {number}")

    one, other = (app.bound_task(name) for name in ("good", "bad"))
    done = [one.enqueue(number=number) for number in range(good)]
    done += [other.enqueue(number=number) for number in range(bad)]
    app.testing().drain()
    return [str(job.id) for job in done]


def only(*policies: ArchivePolicy) -> Retention:
    """The retention with these policies and without the defaults."""
    return Retention(use_defaults=False, policies=policies)


def lease_of(app: App) -> Any:
    return next(lease for lease in app.store.leases() if lease.name == LEASE)


def test_due_jobs_are_moved_to_the_archive_unchanged(app: App) -> None:
    ids = work(app)
    assert app.archive.run().archived == 0  # no job is thirty days old
    done = app.archive.run(older_than=NOW)
    assert (done.archived, done.failed, done.more) == (5, 0, False)
    assert {run.policy: run.statuses for run in done.policies if run.archived} == {
        "completed": {"completed": 3},
        "failed": {"failed": 2},
    }
    assert done.bytes == sum(run.bytes for run in done.policies) > 0
    assert app.jobs.count(tenant="*") == 0
    found = {str(each.id): each for each in app.archive.search().items}
    assert set(found) == set(ids)
    assert all(each.sound and each.tier == "archive" for each in found.values())
    assert app.archive.run(older_than=NOW).archived == 0


def test_a_run_archives_at_most_its_limit_and_reports_that_more_remain(app: App) -> None:
    work(app, good=5, bad=1)
    first = app.archive.run(older_than=NOW, limit=2)
    assert (first.archived, first.more) == (2, True)
    assert [run.policy for run in first.policies if run.more] == ["completed", "failed"]
    second = app.archive.run(older_than=NOW, limit=3)
    assert (second.archived, second.more) == (3, True)
    last = app.archive.run(older_than=NOW)
    assert (last.archived, last.more) == (1, False)


def test_a_run_stops_when_its_time_budget_is_used_up(tmp_path: Path) -> None:
    clock = ManualClock()
    with App("memory://", clock=clock, retention=only(ArchivePolicy("all", max_age=NOW, batch=1))) as app:
        work(app, good=3, bad=0)
        forget = app.store.forget

        def slow(documents: Sequence[ArchivedJob]) -> frozenset[Any]:
            clock.advance(timedelta(seconds=10))
            return forget(documents)

        app.store.forget = slow  # type: ignore[method-assign]
        done = app.archive.run(budget=timedelta(seconds=15))
        assert (done.archived, done.more) == (2, True)


def test_the_oldest_jobs_go_first_and_policies_select_by_task_state_and_age() -> None:
    clock = ManualClock()
    policies = [
        ArchivePolicy(
            "good ones", frozenset({JobState.COMPLETED}), frozenset({"good"}), timedelta(hours=1), "warm"
        ),
        ArchivePolicy("bad ones", frozenset({JobState.FAILED}), max_age=timedelta(hours=3)),
    ]
    with App("memory://", clock=clock, retention=only(*policies)) as app:
        assert app.archive.policies == tuple(policies)
        first = work(app, 1, 1)
        clock.advance(timedelta(hours=2))
        work(app, 1, 1)
        assert app.archive.run().archived == 1
        (found,) = app.archive.search().items
        assert (str(found.id), found.tier, found.policy) == (first[0], "warm", "good ones")
        clock.advance(timedelta(hours=2))
        assert {run.policy: run.archived for run in app.archive.run().policies} == {
            "good ones": 1,
            "bad ones": 1,
        }


def test_the_policies_of_an_app_are_validated() -> None:
    with pytest.raises(BadSettings, match="is not an ArchivePolicy"):
        App("memory://", retention=["old"])  # type: ignore[list-item]
    with pytest.raises(BadSettings, match="two policies named 'a'"):
        App("memory://", retention=[ArchivePolicy("a"), ArchivePolicy("a")])
    with App("memory://") as app:
        assert {policy.max_age for policy in app.archive.policies} == {timedelta(days=30)}
        with pytest.raises(BadSettings, match="a limit of 1 or more"):
            app.archive.run(limit=0)
        with pytest.raises(BadSettings, match="no negative max_age"):
            app.archive.run(older_than=timedelta(seconds=-1))


def test_every_batch_is_audited_with_the_ids_it_removed(app: App) -> None:
    ids = work(app, good=3, bad=0)
    policy = replace(app.archive.policies[0], max_age=NOW, batch=2)
    with acting("ann"):
        app.archive.run([policy])
    found = [entry for entry in entries(app) if entry.action == "jobs.archived"]
    assert [(entry.who, entry.subject, entry.tenant) for entry in found] == [("ann", "jobs", ALL_TENANTS)] * 2
    told = [entry.after or {} for entry in found]
    assert [(each["done"], each["policy"], each["tier"]) for each in told] == [
        (2, "completed", "archive"),
        (1, "completed", "archive"),
    ]
    assert sorted(id for each in told for id in each["ids"]) == sorted(ids)  # type: ignore[attr-defined]
    assert app.audit.verify().ok


def test_a_batch_that_cannot_be_audited_is_not_removed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = work(app, good=2, bad=0)
    with no_audit(app, monkeypatch), pytest.raises(Broken):
        app.archive.run(older_than=NOW)
    assert {str(job.id) for job in app.jobs.list().items} == set(ids)
    assert [sums.archived for sums in read_sums(lease_of(app).metadata).values()] in ([], [0])
    # The lease was released, and the copies are written again.
    assert app.archive.run(older_than=NOW).archived == 2
    assert len(app.archive.search().items) == 2


@contextmanager
def damaged(app: App, monkeypatch: pytest.MonkeyPatch, wrong: set[str]) -> Iterator[None]:
    """Inside the block, the archive stores altered documents for these jobs."""
    put = app.store.put_archive

    def other(documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        put(
            [
                replace(each, document=each.document.replace('"format":1', '"format":2'))
                if str(each.id) in wrong
                else each
                for each in documents
            ],
            now=now,
        )

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "put_archive", other)
        yield


def test_a_batch_with_a_copy_that_differs_is_not_removed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = work(app, good=3, bad=0)
    with damaged(app, monkeypatch, {ids[0]}):
        done = app.archive.run(older_than=NOW)
    assert (done.archived, done.failed, done.more) == (0, 1, True)
    assert {str(job.id) for job in app.jobs.list().items} == set(ids)  # the whole batch stays
    (row,) = app.stats.archival()
    assert (row.archived, row.verified, row.failed) == (0, 0, 1)
    with damaged(app, monkeypatch, {ids[0]}):
        again = app.archive.run(older_than=NOW)
    assert (again.archived, again.failed, again.more) == (0, 1, True)  # and the run ends
    assert app.archive.run(older_than=NOW).archived == 3
    assert app.archive.get(ids[0]).sound


def test_a_copy_of_other_content_with_a_valid_fingerprint_is_rejected(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(app, good=1, bad=0)
    found = app.store.archived

    def swapped(ids: Any, *, tenant: str) -> list[ArchivedJob]:
        return [
            replace(each, document="{}", fingerprint=fingerprint("{}")) for each in found(ids, tenant=tenant)
        ]

    monkeypatch.setattr(app.store, "archived", swapped)
    done = app.archive.run(older_than=NOW)
    assert (done.archived, done.failed) == (0, 1)
    assert app.jobs.count() == 1


def test_a_job_that_is_retried_during_the_run_is_not_removed(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = work(app, good=0, bad=2)
    forget = app.store.forget

    def late(documents: Sequence[ArchivedJob]) -> frozenset[Any]:
        app.jobs.get(ids[0]).retry()
        return forget(documents)

    monkeypatch.setattr(app.store, "forget", late)
    done = app.archive.run(older_than=NOW)
    (run,) = [run for run in done.policies if run.verified]
    assert (run.archived, run.verified, run.changed) == (1, 2, 1)
    assert app.jobs.get(ids[0]).status is JobState.PENDING


def test_a_failing_policy_does_not_stop_the_others(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    work(app)
    archivable = app.store.archivable

    def some(selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        if policy == "completed":
            raise StoreUnavailable("the disk is away")
        return archivable(selection, policy=policy, tier=tier)

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "archivable", some)
        done = app.archive.run(older_than=NOW)
        assert {
            run.policy: (run.archived, run.error) for run in done.policies if run.archived or run.error
        } == {
            "completed": (0, "store_unavailable"),
            "failed": (2, None),
        }
        assert done.more
        assert {row.policy: row.errors for row in app.stats.archival()} == {"completed": 1, "failed": 0}
        only = replace(app.archive.policies[0], max_age=NOW)
        with pytest.raises(StoreUnavailable):  # no policy could run
            app.archive.run([only])
    assert app.archive.run(older_than=NOW).archived == 3


def test_only_one_process_archives_at_a_time(app: App) -> None:
    work(app, good=1, bad=0)
    holder = new_id()
    lease = app.store.acquire(LEASE, holder, ttl=timedelta(minutes=1))
    assert lease is not None
    with pytest.raises(ArchiveRunning, match="another archive run is in progress"):
        app.archive.run(older_than=NOW)
    assert app.store.release(LEASE, holder, lease.term)
    assert app.archive.run(older_than=NOW).archived == 1
    assert lease_of(app).holder is None


def test_a_run_that_loses_its_lease_removes_no_more_jobs(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    work(app, good=2, bad=0)
    put = app.store.put_archive

    def taken(documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        put(documents, now=now)
        found = lease_of(app)
        app.store.release(LEASE, found.holder, found.term)

    with monkeypatch.context() as patch:
        patch.setattr(app.store, "put_archive", taken)
        with pytest.raises(LeaseLost):
            app.archive.run(older_than=NOW)
    assert app.jobs.count() == 2
    assert app.archive.run(older_than=NOW).archived == 2


def test_totals_accumulate_over_runs_and_are_shared_by_all_processes(app: App) -> None:
    for number in range(1, 4):
        work(app, good=2, bad=1)
        app.archive.run(older_than=NOW)
        assert {row.policy: (row.archived, row.runs) for row in app.stats.archival()} == {
            "completed": (2 * number, number),
            "failed": (number, number),
        }
    text = app.stats.metrics()
    assert 'tidemill_jobs_archived_total{policy="completed",status="completed",tier="archive"} 6' in text
    assert 'tidemill_jobs_archival_duration_seconds_count{policy="failed"} 3' in text
    assert 'tidemill_archive_verified_total{policy="failed"} 3' in text
    assert 'tidemill_archive_failed_total{policy="failed"} 0' in text
    assert 'tidemill_archive_bytes_total{policy="completed"}' in text
    assert "tidemill_history_age_seconds 0" in text.splitlines()
    assert 'tidemill_lease_held{lease="archive"}' not in text  # an archive lease without a holder is normal


def test_metrics_report_the_age_of_the_oldest_job_that_is_not_archived() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:
        work(app, good=1, bad=0)
        clock.advance(timedelta(hours=1))
        assert "tidemill_history_age_seconds 3600" in app.stats.metrics().splitlines()


def test_copies_go_to_the_store_named_archive(tmp_path: Path) -> None:
    stores = {"default": f"sqlite:///{tmp_path}/jobs.db", "archive": f"sqlite:///{tmp_path}/archive.db"}
    with App(stores=stores, migrate=True) as app:
        ids = work(app, good=2, bad=0)
        assert app.archive.run(older_than=NOW).archived == 2
        assert app.jobs.count() == 0
        assert {str(each.id) for each in app.archive.search().items} == set(ids)
        assert app.archive.search(store="default").items == []


def test_unreadable_totals_count_as_zero() -> None:
    assert read_sums({}) == {}
    assert read_sums({"policies": "nonsense"}) == {}
    odd = {"policies": {"a": {"verified": "x", "buckets": [1], "statuses": {"failed": 2, "x": "y"}}, "b": 3}}
    (found,) = read_sums(odd).values()
    assert (found.verified, found.runs, found.archived) == (0, 0, 2)
    many = {"policies": {str(number): PolicySums("x", "y").data() for number in range(MOST_POLICIES + 5)}}
    assert len(read_sums(many)) == MOST_POLICIES


def test_every_method_has_an_async_variant(app: App) -> None:
    for name in ("run", "search", "get"):
        assert inspect.iscoroutinefunction(getattr(Archive, f"a{name}"))
    assert inspect.signature(Archive.run).parameters == inspect.signature(Archive.arun).parameters
    work(app, good=1, bad=0)
    assert asyncio.run(app.archive.arun(older_than=NOW)).archived == 1
