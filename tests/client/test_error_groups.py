"""Tests of ``app.errors``: groups, statuses, parts and retries, on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.client.audit_kit import acts, entries

from tidemill import App, PermanentError
from tidemill.client.access import acting
from tidemill.clock import ManualClock
from tidemill.domain.failures import ErrorStatus
from tidemill.errors import BadFilter, ErrorGroupNotFound

MINUTE = timedelta(minutes=1)


def charge(order: int) -> None:
    raise PermanentError(f"order {order} is unpaid")


def refund(order: int) -> None:
    raise KeyError(order)


@pytest.fixture
def shop(app: App) -> App:
    """An app of which three jobs failed in one place, and one in another."""
    app.task(name="charge")(charge)
    app.task(name="refund", max_retries=0)(refund)
    for order, tenant in ((1, "acme"), (2, "acme"), (3, "other")):
        with app.tenant(tenant):
            app.enqueue("charge", order=order)
    with app.tenant("acme"):
        app.enqueue("refund", order=9)
    app.testing().drain()
    return app


def first(app: App, tenant: str = "*") -> str:
    return app.errors.list(tenant=tenant)[0].fingerprint


def test_failures_are_grouped_by_class_and_place(shop: App) -> None:
    groups = shop.errors.list(tenant="*")
    assert [(row.jobs, row.tenants, row.message) for row in groups] == [
        (3, 2, "order # is unpaid"),
        (1, 1, "#"),
    ]
    assert groups[0].place == "client/test_error_groups.py in charge"
    assert [row.status for row in groups] == [ErrorStatus.OPEN] * 2
    assert sum(groups[0].trend) == 3
    assert [row.jobs for row in shop.errors.list(tenant="acme")] == [2, 1]
    assert [row.task for row in shop.errors.list(tenant="acme", task="refund")] == ["refund"]
    assert shop.errors.get(groups[0].fingerprint, "1h", tenant="*").jobs == 3
    assert [row.jobs for row in shop.stats.errors(tenant="*")] == [3, 1]


def test_a_group_is_divided_by_variant_task_and_tenant(shop: App) -> None:
    key = first(shop)
    assert [row.message for row in shop.errors.parts(key, tenant="*")] == ["order # is unpaid"]
    tenants = shop.errors.parts(key, "tenant", tenant="*")
    assert [(row.name, row.jobs) for row in tenants] == [("acme", 2), ("other", 1)]
    assert [row.name for row in shop.errors.parts(key, "task", tenant="acme")] == ["charge"]
    with pytest.raises(BadFilter, match="choose variant, task or tenant"):
        shop.errors.parts(key, "queue")


def test_a_muted_group_is_counted_and_can_be_opened_again(shop: App) -> None:
    key = first(shop)
    with acting("ann"):
        muted = shop.errors.mute(key, tenant="*")
    assert (muted.status, muted.marked_by, muted.jobs) == (ErrorStatus.MUTED, "ann", 3)
    assert [row.fingerprint for row in shop.errors.list(status="muted", tenant="*")] == [key]
    assert key not in {row.fingerprint for row in shop.errors.list(status=["open", "regressed"], tenant="*")}
    assert shop.errors.unmute(key, tenant="*").status is ErrorStatus.OPEN
    assert [action for action, _ in acts(shop)][-2:] == ["error.muted", "error.reopened"]
    muting = next(entry for entry in entries(shop) if entry.action == "error.muted")
    assert (muting.who, muting.subject) == ("ann", f"error:{key}")
    assert (muting.before or {})["status"] == "open"


def test_a_status_belongs_to_its_tenant_or_to_all(shop: App) -> None:
    key = first(shop)
    shop.errors.mute(key, tenant="acme")
    assert shop.errors.get(key, tenant="acme").status is ErrorStatus.MUTED
    assert shop.errors.get(key, tenant="other").status is ErrorStatus.OPEN
    assert shop.errors.get(key, tenant="*").status is ErrorStatus.OPEN
    shop.errors.resolve(key, tenant="*")
    assert shop.errors.get(key, tenant="other").status is ErrorStatus.RESOLVED


def test_a_resolved_group_that_fails_again_is_regressed(shop: App) -> None:
    key = first(shop)
    assert shop.errors.resolve(key, tenant="*").status is ErrorStatus.RESOLVED
    with shop.tenant("acme"):
        shop.enqueue("charge", order=4)
    shop.testing().drain()
    again = shop.errors.get(key, tenant="*")
    assert (again.status, again.jobs) == (ErrorStatus.REGRESSED, 4)
    assert [row.fingerprint for row in shop.errors.list(status="regressed", tenant="*")] == [key]
    assert shop.errors.unresolve(key, tenant="*").status is ErrorStatus.OPEN


def test_all_jobs_of_a_group_are_retried(shop: App) -> None:
    key = first(shop)
    assert shop.jobs.count(error_group=key, tenant="*") == 3
    acted = shop.errors.retry(key, tenant="acme")
    assert (acted.done, acted.skipped) == (2, 0)
    assert shop.jobs.counts(tenant="acme", task="charge") == {"pending": 2}
    assert shop.jobs.count(error_group=key, tenant="*") == 1
    assert shop.errors.get(key, tenant="*").jobs == 3, "a retry changes no count"
    assert acts(shop)[-1] == ("jobs.retried", "jobs")


def test_an_unknown_group_and_a_bad_filter_are_refused(shop: App) -> None:
    with pytest.raises(ErrorGroupNotFound, match="tidemill errors list"):
        shop.errors.get("0123456789abcdef")
    with pytest.raises(ErrorGroupNotFound):
        shop.errors.mute("0123456789abcdef")
    with pytest.raises(ErrorGroupNotFound):
        shop.errors.parts("0123456789abcdef")
    with pytest.raises(ErrorGroupNotFound):
        shop.errors.retry("0123456789abcdef")
    with pytest.raises(BadFilter, match="there is no error status 'x'; there are open, regressed"):
        shop.errors.list(status="x")
    with pytest.raises(BadFilter, match="longer than zero"):
        shop.errors.list(timedelta(0))
    other = first(shop, "other")
    with shop.tenant("nobody"), pytest.raises(ErrorGroupNotFound):
        shop.errors.resolve(other)


def test_an_error_is_new_until_the_next_deploy() -> None:
    clock = ManualClock()
    app = App("memory://", name="shop", release="1.0", clock=clock)
    app.task(name="charge")(charge)
    app.reconcile()
    app.reconcile()
    assert [(row.app, row.release) for row in app.errors.deploys()] == [("shop", "1.0")]
    clock.advance(MINUTE)
    app.enqueue("charge", order=1)
    app.testing().drain()
    (row,) = app.errors.list()
    assert (row.is_new, row.status, row.regressed_since_deploy) == (True, ErrorStatus.OPEN, False)
    clock.advance(MINUTE)
    app.errors.resolve(row.fingerprint)
    clock.advance(MINUTE)
    app.store.note_deploy("shop", "1.1", now=clock.now())
    (row,) = app.errors.list()
    assert (row.is_new, row.status) == (False, ErrorStatus.RESOLVED)
    clock.advance(MINUTE)
    app.enqueue("charge", order=2)
    app.testing().drain()
    (row,) = app.errors.list()
    assert (row.status, row.regressed_since_deploy) == (ErrorStatus.REGRESSED, True)
    assert app.errors.deploys(limit=1)[0].release == "1.1"
    app.close()


def test_an_app_without_a_release_has_no_deploys() -> None:
    app = App("memory://", name="shop")
    app.reconcile()
    assert app.errors.deploys() == []
    app.close()


def test_old_failures_are_merged_and_dropped_by_the_fold() -> None:
    from tidemill.engine.duties import FoldEnds

    clock = ManualClock()
    app = App("memory://", clock=clock)
    app.task(name="charge")(charge)
    job = app.enqueue("charge", order=1)
    app.testing().drain()
    job.delete()
    clock.advance(timedelta(hours=2))
    FoldEnds(app.store)()
    (row,) = app.errors.list()
    assert (row.jobs, row.message, row.example) == (1, "", None)
    clock.advance(timedelta(days=61))
    FoldEnds(app.store)()
    assert app.errors.list("60d") == []
    app.close()
