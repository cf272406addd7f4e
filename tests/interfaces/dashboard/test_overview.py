"""The first page: what needs attention leads to where it is mended, charts can be read, and a beginner is told how to begin."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.interfaces.dashboard.crowd import join, post, words
from tests.interfaces.dashboard.kit import House

from tidemill.dashboard import charts
from tidemill.dashboard.attention import concern
from tidemill.dashboard.site import all_pages
from tidemill.domain.alerts import Alert, Severity

CODES = (
    "failure_rate", "stuck_jobs", "queue_depth", "queue_age", "worker_disabled", "no_workers", "orphans", "dead_letters",
    "stuck_leader", "bad_setting", "one that is new",
)  # fmt: skip


def test_who_has_no_job_yet_is_told_how_to_begin(shop: House) -> None:
    page = shop.person("super_admin").open("/")
    assert "No job has been enqueued yet" in page
    assert "@app.task" in page
    post(shop)
    assert "No job has been enqueued yet" not in shop.person("super_admin").open("/")
    assert "No job has been enqueued yet" in shop.person("viewer", "other").open("/")


def test_an_alert_leads_to_where_it_is_mended(shop: House) -> None:
    post(shop)
    page = shop.person("viewer").open("/")
    assert "No worker is alive while 1 job is waiting" in page
    assert 'class="go" href="/workers">The workers' in page


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("severity", list(Severity))
def test_every_alert_leads_somewhere(code: str, severity: Severity) -> None:
    found = concern(Alert(code, severity, "something; see tidemill stats", 1, 0, "mail"))
    assert found.text == "Something"
    assert found.link
    rooms = ("/jobs", "/errors", "/queues", "/workers", "/settings")
    assert found.path in rooms


def test_what_leads_to_a_room_of_this_file_s_neighbours_is_a_page() -> None:
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


def test_the_charts_say_when_and_what(shop: House) -> None:
    post(shop)
    shop.drain()
    page = shop.person("viewer").open("/")
    assert "1 completed, 0 failed, 0 cancelled" in page
    assert "duration p50 " in page


def test_a_mark_stands_where_its_moment_is() -> None:
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


def test_who_sees_one_tenant_is_led_to_no_room_that_is_closed_to_them(shop: House) -> None:
    post(shop)
    page = shop.person("viewer", "acme").open("/")
    assert "No worker is alive while 1 job is waiting" in page
    assert "/workers" not in page


def test_failing_tasks_lead_to_every_job_that_is_counted(shop: House) -> None:
    post(shop, "fail", words="no")
    shop.drain()
    page = shop.person("viewer").open("/")
    assert 'href="/jobs?task=fail&amp;state=failed&amp;state=timed_out&amp;state=dead_lettered"' in page
