"""The overview: alerts, charts, and help for a store without jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.interfaces.dashboard.crowd import join, post, words
from tests.interfaces.dashboard.kit import House

from tidemill.client.stats.reports import ThroughputStep
from tidemill.dashboard import charts
from tidemill.dashboard.alert_links import concern
from tidemill.dashboard.overview import now_figures
from tidemill.dashboard.site import all_pages
from tidemill.domain.alerts import Alert, Severity

CODES = (
    "failure_rate", "stuck_jobs", "queue_depth", "queue_age", "worker_disabled", "no_workers", "lost_workers", "orphans", "dead_letters",
    "stuck_leader", "bad_setting", "archive_mismatch", "schedule_late", "breaker_open", "stalled_flow", "unserved_store", "unknown_task", "one that is new",
)  # fmt: skip


def test_without_jobs_the_overview_explains_how_to_begin(shop: House) -> None:
    page = shop.person("super_admin").open("/")
    assert "No job has been enqueued yet" in page
    assert "@app.task" in page
    post(shop)
    assert "No job has been enqueued yet" not in shop.person("super_admin").open("/")
    assert "No job has been enqueued yet" in shop.person("viewer", "other").open("/")


def test_an_alert_links_to_the_page_that_resolves_it(shop: House) -> None:
    post(shop)
    page = shop.person("viewer").open("/")
    assert "No worker is alive while 1 job is waiting" in page
    assert 'class="go" href="/workers">Workers' in page


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("severity", list(Severity))
def test_every_alert_has_a_link(code: str, severity: Severity) -> None:
    found = concern(Alert(code, severity, "something; see tidemill stats", 1, 0, "mail"))
    assert found.text == "Something"
    assert found.link
    rooms = ("/jobs", "/archive", "/errors", "/flows", "/queues", "/schedules", "/workers", "/settings")
    assert found.path in rooms


def test_the_linked_pages_exist() -> None:
    known = {page.path for page in all_pages() if page.method == "GET"}
    assert {"/workers", "/settings", "/tenants", "/audit"} <= known


def test_workers_are_listed_and_a_new_version_is_marked(shop: House) -> None:
    join(shop, "grinder", version="9.9")
    post(shop)
    shop.drain()
    page = shop.person("viewer").open("/")
    read = words(page)
    assert "grinder 9.9" in read
    assert "version 9.9 started" in read
    assert '<line class="mark"' in page
    assert page.count('data-time="short"') >= 5


def test_the_charts_show_times_and_values(shop: House) -> None:
    post(shop)
    shop.drain()
    page = shop.person("viewer").open("/")
    assert "1 completed, 0 failed, 0 cancelled" in page
    assert 'aria-label="Ended jobs by outcome over the last 1h"' in page
    by_task = shop.person("viewer").open("/?by=task&window=30d")
    assert "1 send" in by_task
    assert '<span class="key c-g0">send</span>' in by_task


def test_figures_compare_the_last_minutes_with_the_hour_before() -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)

    def minute(number: int, total: int, failed: int, took: float) -> ThroughputStep:
        at, span = first + timedelta(minutes=number), timedelta(seconds=took)
        return ThroughputStep(at, total, total - failed, failed, 0, span, span, span, span)

    # The last minute is not over, so it does not count.
    steps = [minute(number, 10, 1, 2) for number in range(55)] + [minute(55 + n, 20, 10, 1) for n in range(5)]
    rate, failed, run, wait = now_figures([*steps, minute(60, 0, 0, 0)])
    assert (rate.value, rate.change, rate.worse) == ("20", "+100 %", False)
    assert (failed.value, failed.change, failed.worse) == ("50 %", "+40 points", True)
    assert (run.value, run.change, wait.worse) == ("1 s", "−50 %", False)
    assert [figure.value for figure in now_figures([])] == ["–", "–", "–", "–"]


def test_a_mark_is_at_its_point_in_time() -> None:
    first = datetime(2026, 1, 1, tzinfo=UTC)
    steps = [(first + timedelta(minutes=number), {"completed": 1}) for number in range(10)]
    chart = charts.stacked(
        steps, width=100, marks=[(first + timedelta(minutes=5), "here"), (first - timedelta(days=1), "out")]
    )
    assert [(mark.at, mark.label) for mark in chart.marks] == [(50.0, "here")]
    assert (chart.times[0], chart.times[-1]) == (first, first + timedelta(minutes=10))
    lines = charts.lines({"a": [1.0, None]}, ats=[first, first + timedelta(minutes=1)], width=100)
    assert [hit.values for hit in lines.hits] == [{"a": 1.0}, {"a": None}]
    assert [hit.x for hit in lines.hits] == [0, 50]
    assert charts.lines({"a": []}).times == []


def test_a_user_of_one_tenant_gets_no_link_to_a_forbidden_page(shop: House) -> None:
    post(shop)
    page = shop.person("viewer", "acme").open("/")
    assert "No worker is alive while 1 job is waiting" in page
    assert "/workers" not in page


def test_failing_tasks_link_to_every_counted_job(shop: House) -> None:
    post(shop, "fail", words="no")
    shop.drain()
    page = shop.person("viewer").open("/")
    assert 'href="/jobs?task=fail&amp;status=failed&amp;status=timed_out&amp;status=dead_lettered"' in page


def test_the_overview_names_a_resolved_error_that_fails_again(shop: House) -> None:
    def fail() -> None:
        with shop.app.tenant("acme"):
            shop.app.bound_task("fail").enqueue(words="no")
        shop.drain()

    fail()
    viewer = shop.person("viewer", "acme")
    assert "resolved error" not in viewer.open("/")
    (group,) = shop.app.errors.list(tenant="acme")
    shop.app.errors.resolve(group.fingerprint, tenant="acme")
    fail()
    assert '<a href="/errors?status=regressed">1 resolved error is back</a>' in viewer.open("/")
    assert group.fingerprint in viewer.open("/errors?status=regressed")
