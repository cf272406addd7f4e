"""Typical tasks of users in a real browser, most of them with and without scripts."""

from __future__ import annotations

import os
import re
import statistics
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, apart, served
from tests.interfaces.rest.kit import declare

from tidemill import App, Context, JobState
from tidemill.domain.filters import ALL_TENANTS

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)

BOTH = pytest.mark.parametrize("script", [True, False])


class Gate:
    """A task that advances one step each time its gate opens."""

    def __init__(self) -> None:
        self.steps = [threading.Event() for _ in range(4)]
        self.has_address = False

    def declare(self, app: App) -> None:
        declare(app)

        @app.task(name="long", retry=None)
        def long(ctx: Context) -> str:
            """Wait at every step."""
            for number, gate in enumerate(self.steps):
                ctx.progress(number + 1, 4, f"step {number + 1}")
                ctx.log(f"now at step {number + 1}")
                if not gate.wait(PATIENCE / 1000):
                    raise TimeoutError("nobody opened the gate")
            return "through"

        @app.task(name="ship", retry=None)
        def ship(order: int) -> str:
            if not self.has_address:
                raise LookupError(f"order {order} has no address")
            return "on its way"

    def open(self) -> None:
        for gate in self.steps:
            gate.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open()


@pytest.fixture
def site(gate: Gate) -> Iterator[Served]:
    with served(tasks=gate.declare) as made:
        yield made


def badge(page: Page) -> str:
    """The state of the job on this page."""
    return page.locator("main .badge").first.inner_text()


@BOTH
def test_a_failed_job_is_found_and_retried(site_windows: SiteWindows, script: bool) -> None:
    site = site_windows.site
    job = site.enqueue("fail", words="no such address: lighthouse")
    site.enqueue("fail", words="something else")
    site.enqueue("send", to="ada")
    site.drain()
    page = site_windows.window(role="operator", script=script).open("/jobs")
    page.get_by_label("Search jobs").fill("status:failed LIGHTHOUSE")
    page.get_by_role("button", name="Find").click()
    expect(page).to_have_url(re.compile("text=LIGHTHOUSE"))
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(1)
    rows.first.get_by_role("link").first.click()
    expect(page.locator("main")).to_contain_text("no such address: lighthouse")
    page.get_by_role("button", name=re.compile("^Retry")).click()
    expect(page.get_by_role("status").filter(has_text=re.compile("."))).to_be_visible()
    assert job.refresh().status is JobState.PENDING


@BOTH
def test_a_person_switches_to_another_store(gate: Gate, script: bool, chromium: Browser) -> None:
    with served(tasks=gate.declare, stores={"reports": "memory://"}) as site:
        here = site.enqueue("send", to="ada")
        there = site.enqueue("send", {"store": "reports"}, to="grace")
        windows = SiteWindows(chromium, site)
        try:
            page = windows.window(role="viewer", script=script).open("/jobs")
            expect(page.locator("tbody")).to_contain_text(str(here.id)[-12:])
            page.get_by_label("Store").select_option("reports")
            if not script:
                page.get_by_role("button", name="Show", exact=True).click()
            expect(page).to_have_url(re.compile("store=reports"))
            expect(page.locator("tbody tr")).to_have_count(1)
            expect(page.locator("tbody")).to_contain_text(str(there.id)[-12:])
        finally:
            windows.close()


def test_a_running_job_is_watched_to_its_end(site_windows: SiteWindows, gate: Gate) -> None:
    site = site_windows.site
    with site.app.worker(grace=0.1):
        job = site.enqueue("long")
        page = site_windows.window(role="viewer").open(f"/jobs/{job.id}")
        page.evaluate("window.same = true")
        expect(page.locator("main .badge").first).to_have_text("running")
        for number in range(4):
            expect(page.locator("main")).to_contain_text(f"step {number + 1}")
            gate.steps[number].set()
        expect(page.locator("main .badge").first).to_have_text("completed")
        expect(page.locator("#log")).to_contain_text("now at step 4")
        expect(page.locator("main")).to_contain_text("through")
        assert page.evaluate("window.same") is True


@BOTH
def test_a_paused_queue_shows_in_another_window_at_once(site_windows: SiteWindows, script: bool) -> None:
    site = site_windows.site
    job = site.enqueue("send", to="ada")
    other = site_windows.window(role="viewer").open("/queues")
    other.evaluate("window.same = true")
    page = site_windows.window(role="operator", script=script).open("/queues")
    _pause(page, "mail", "letters are wrong")
    expect(page.locator("main")).to_contain_text("letters are wrong")
    expect(other.locator("main")).to_contain_text("letters are wrong")
    assert other.evaluate("window.same") is True
    site.drain()
    assert job.refresh().status is JobState.PENDING
    row = page.locator("tr", has=page.get_by_role("link", name="mail", exact=True)).first
    row.get_by_role("button", name="Resume").click()
    expect(page.locator("main")).not_to_contain_text("letters are wrong")
    site.drain()
    assert job.refresh().status is JobState.COMPLETED


def _pause(page: Page, queue: str, reason: str) -> None:
    row = page.locator("tr", has=page.get_by_role("link", name=queue, exact=True)).first
    row.locator("summary").click()
    row.get_by_label(re.compile("^Reason")).fill(reason)
    row.get_by_role("button", name="Pause").click()


def test_input_is_kept_while_the_page_updates(site_windows: SiteWindows) -> None:
    site = site_windows.site
    site.enqueue("send", to="ada")
    page = site_windows.window(role="operator").open("/queues")
    row = page.locator("tr", has=page.get_by_role("link", name="mail", exact=True)).first
    row.locator("summary").click()
    row.get_by_label(re.compile("^Reason")).fill("letters are")
    page.keyboard.press("Tab")
    other = site_windows.window(role="viewer").open("/queues")
    site.enqueue("send", to="grace")
    expect(other.get_by_role("cell", name="2", exact=True).first).to_be_visible()
    expect(row.get_by_label(re.compile("^Reason"))).to_have_value("letters are")
    expect(row.get_by_role("button", name="Pause")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("letters are")


@BOTH
def test_a_schedule_is_created_and_fires(site_windows: SiteWindows, script: bool) -> None:
    site = site_windows.site
    page = site_windows.window(role="admin", script=script).open("/schedules")
    page.get_by_role("link", name="New schedule").click()
    page.locator("#f-key").fill("every-second")
    page.locator("#f-task").select_option("send")
    if not script:
        page.get_by_role("button", name="Show its arguments").click()
    expect(page.get_by_label(re.compile("^to string"))).to_be_visible()
    page.locator("input[name=kind][value=every]").check()
    page.locator("input[name=interval]").fill("1")
    page.locator("select[name=interval_unit]").select_option("seconds")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("[aria-invalid=true]")).to_have_attribute("name", "arg.to")
    expect(page.locator("#f-key")).to_have_value("every-second")
    page.get_by_label(re.compile("^to string")).fill("ada")
    if not script:
        page.get_by_role("button", name="Preview").click()
    expect(page.get_by_label("Preview")).to_contain_text("Every second")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("h1")).to_contain_text("every-second")
    with site.app.worker(grace=0.1):
        if script:
            expect(page.locator("#fires .badge").filter(has_text="completed").first).to_be_visible()
        else:
            _until(lambda: site.app.jobs.count(status=JobState.COMPLETED, tenant=ALL_TENANTS) > 0, page)
            page.reload()
            expect(page.locator("#fires tbody tr").first).to_be_visible()


def test_a_schedule_is_moved_across_a_clock_change_with_the_keyboard(site_windows: SiteWindows) -> None:
    site = site_windows.site
    made = site.app.schedules.add("send", "0 6 * * *", "letters", args={"to": "ada"})
    page = site_windows.window(role="admin").open("/schedules")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("letters")
    _tab_to(page, "Edit")
    page.keyboard.press("Enter")
    expect(page.locator("#preview h2")).to_have_text("At 06:00 every day")
    _tab_to(page, "arg.to")
    page.keyboard.type("grace")
    _tab_to(page, "kind")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    _tab_to(page, "daily_at")
    page.keyboard.type("02:30")
    expect(page.locator("#preview h2")).to_have_text("At 02:30 every day")
    expect(page.locator("#preview")).to_contain_text("UTC")
    _tab_to(page, "timezone")
    expect(page.locator("#zone-list li").first).to_contain_text("Europe/Berlin")
    expect(page.locator("#zone-list li").first).to_contain_text("your time")
    page.keyboard.type("berl")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#f-timezone")).to_have_value("Europe/Berlin")
    expect(page.locator("#preview .clock-changes li").first).to_contain_text("02:30")
    page.locator("#preview-from").evaluate(
        "(field) => { field.value = '2027-03-28'; field.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    expect(page.locator("#preview")).to_contain_text("Sun 2027-03-28 03:00:00 +0200")
    expect(page.locator("#preview")).to_contain_text("02:30, which does not exist on this day")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("is saved and effective immediately")
    changed = site.app.schedules.get(made.id)
    assert (changed.words, changed.timezone, changed.args) == (
        "At 02:30 every day",
        "Europe/Berlin",
        {"to": "grace"},
    )


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the control with this name, or the link or button with this text, has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if (
            page.evaluate("(document.activeElement.name || document.activeElement.textContent).trim()")
            == name
        ):
            return
    raise AssertionError(f"Tab does not reach {name}")


def test_a_schedule_is_run_and_paused_in_the_list_and_the_pause_is_undone(site_windows: SiteWindows) -> None:
    site = site_windows.site
    made = site.app.schedules.add("send", "0 6 * * *", "letters", args={"to": "ada"})
    page = site_windows.window(role="operator").open("/schedules")
    page.keyboard.press("j")
    page.keyboard.press("n")
    expect(page.locator("#ask h1")).to_have_text("Run letters now?")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("of schedule letters was created")
    assert site.app.jobs.count(tenant=ALL_TENANTS) == 1
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Schedule letters is paused.")
    assert not site.app.schedules.get(made.id).enabled
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".toast")).to_contain_text("Schedule letters is resumed.")
    assert site.app.schedules.get(made.id).enabled


def test_a_key_is_revoked_after_a_question_in_a_dialog(site_windows: SiteWindows) -> None:
    site = site_windows.site
    key = site.app.keys.create("deploys", role="viewer").key
    page = site_windows.window().open("/settings/keys")
    page.get_by_role("link", name="Revoke deploys").click()
    expect(page.locator("#ask[open] h1")).to_contain_text("deploys")
    page.locator("#ask").get_by_role("link", name="Cancel").click()
    expect(page.locator("#ask")).to_be_hidden()
    assert site.app.keys.get(key.id).revoked_at is None
    page.get_by_role("link", name="Revoke deploys").click()
    page.locator("#ask button.danger").click()
    expect(page.locator(".toast")).to_contain_text("deploys")
    assert site.app.keys.get(key.id).revoked_at is not None


def test_a_flow_is_cancelled_with_a_reason(site_windows: SiteWindows) -> None:
    site = site_windows.site
    flow = site.app.flow("letters")
    flow.add(site.app.bound_task("send"), to="ada")
    run = apart(flow.start)
    page = site_windows.window(role="operator").open(f"/flows/{run.id}")
    page.locator("summary", has_text="Cancel the flow").click()
    page.get_by_label(re.compile("^Reason")).fill("the edition is off")
    page.locator("#do-cancel button").click()
    expect(page.locator("#summary")).to_contain_text("the edition is off")


def test_why_a_job_waits_is_found_with_the_keyboard(site_windows: SiteWindows) -> None:
    site = site_windows.site
    site.app.control.pause("queue", "mail", reason="the provider is down")
    job = site.enqueue("send", to="ada")
    page = site_windows.window(role="viewer").open("/")
    page.keyboard.press("Control+k")
    page.keyboard.type(str(job.id)[-12:])
    expect(page.locator("#palette li").first).to_contain_text("job id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(str(job.id)))
    expect(page.locator("main")).to_contain_text("the provider is down")


def test_a_review_is_approved_with_the_keyboard(site_windows: SiteWindows) -> None:
    site = site_windows.site
    job = site.enqueue("look", what="the cover")
    site.drain()
    page = site_windows.window(role="operator").open("/jobs?status=review_needed")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("is this right?")
    _tab_to(page, "Approve…")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("it is")
    page.keyboard.press("Enter")
    expect(page.locator("main .badge").first).to_have_text("completed")
    assert (job.refresh().status, job.refresh().reason) == (JobState.COMPLETED, "it is")


@BOTH
def test_a_review_is_approved_with_a_comment(site_windows: SiteWindows, script: bool) -> None:
    site = site_windows.site
    job = site.enqueue("look", what="the cover")
    site.drain()
    page = site_windows.window(role="operator", script=script).open("/")
    page.locator(".counts a", has_text="review needed").click()
    page.locator("tbody tr").first.get_by_role("link").first.click()
    expect(page.locator("main")).to_contain_text("is this right?")
    page.locator("summary", has_text="Approve").click()
    page.locator("#do-approve").get_by_label("Comment").fill("it is")
    page.locator("#do-approve").get_by_role("button", name="Approve").click()
    expect(page.locator("main .badge").first).to_have_text("completed")
    assert job.refresh().reason == "it is"


@BOTH
def test_all_matching_jobs_are_cancelled_after_their_number_is_shown(
    site_windows: SiteWindows, script: bool
) -> None:
    site = site_windows.site
    for number in range(60):
        site.enqueue("send", {"delay": timedelta(hours=1)}, to=f"reader {number}")
    kept = site.enqueue("talk", {"delay": timedelta(hours=1)}, lines=1)
    page = site_windows.window(role="operator", script=script).open("/jobs?task=send")
    page.get_by_role("link", name=re.compile("^All matching jobs")).click()
    page.get_by_role("link", name="cancel", exact=True).click()
    expect(page.locator(".sure h1")).to_contain_text("60")
    assert site.app.jobs.count(status=JobState.CANCELLED, tenant=ALL_TENANTS) == 0
    page.get_by_label(re.compile("^Reason")).fill("the edition is off")
    page.locator(".sure button.danger").click()
    expect(page.get_by_role("status").filter(has_text="60")).to_be_visible()
    assert site.app.jobs.count(status=JobState.CANCELLED, tenant=ALL_TENANTS) == 60
    assert kept.refresh().status is JobState.SCHEDULED


def test_jobs_selected_by_keyboard_are_cancelled_while_the_list_stays_unchanged(
    site_windows: SiteWindows,
) -> None:
    site = site_windows.site
    jobs = [site.enqueue("send", {"delay": timedelta(hours=1)}, to=f"reader {number}") for number in range(4)]
    page = site_windows.window(role="operator").open("/jobs")
    expect(page.locator("tbody tr")).to_have_count(4)
    for key in ("j", "x", "j", "j", "x", "k"):
        page.keyboard.press(key)
    expect(page.locator("[data-selected]")).to_have_text("2")
    other = site_windows.window(role="viewer").open("/jobs")
    site.enqueue("send", {"delay": timedelta(hours=1)}, to="one more")
    expect(other.locator("tbody tr")).to_have_count(5)
    expect(page.locator("tbody tr")).to_have_count(4)
    page.locator(".bulk button[value=cancel]").click()
    expect(page.locator("#ask h1")).to_contain_text("2")
    page.locator("#ask button.danger").click()
    expect(page.get_by_role("status").filter(has_text="2")).to_be_visible()
    states = [job.refresh().status for job in reversed(jobs)]
    assert states == [JobState.CANCELLED, JobState.SCHEDULED, JobState.CANCELLED, JobState.SCHEDULED]


def test_a_failed_job_is_found_by_an_argument_and_retried_with_the_keyboard(
    site_windows: SiteWindows,
) -> None:
    site = site_windows.site
    job, other = site.enqueue("fail", words="lighthouse"), site.enqueue("fail", words="harbour")
    site.drain()
    page = site_windows.window(role="operator").open("/")
    page.keyboard.press("Control+k")
    page.keyboard.type("jobs")
    expect(page.locator("#palette li[aria-selected=true]")).to_have_text("Jobspage")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.keyboard.press("/")
    page.keyboard.type("error:Perm")
    expect(page.locator("#completions li")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Search jobs")).to_have_value("error:PermanentError ")
    page.keyboard.type("arg.words:lighthouse")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("body").press("j")
    page.keyboard.press("v")
    expect(page.locator("#panel")).to_contain_text("lighthouse")
    page.keyboard.press("Escape")
    expect(page.locator("#panel")).to_be_hidden()
    page.keyboard.press("r")
    expect(page.locator(".toast")).to_contain_text("pending again")
    assert (job.refresh().status, other.refresh().status) == (JobState.PENDING, JobState.FAILED)


def test_an_error_that_regressed_is_retried_and_resolved_with_the_keyboard(
    site_windows: SiteWindows, gate: Gate
) -> None:
    site = site_windows.site
    first = site.enqueue("ship", order=1)
    site.drain()
    (group,) = site.app.errors.list(tenant=ALL_TENANTS)
    site.app.errors.resolve(group.fingerprint, tenant=ALL_TENANTS)
    site.app.store.note_deploy("shop", "2")
    second = site.enqueue("ship", order=2)
    site.drain()
    page = site_windows.window(role="operator").open("/")
    _tab_to(page, "1 resolved error is back")
    page.keyboard.press("Enter")
    expect(page.locator("#kinds")).to_contain_text("since the deploy")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#kind")).to_contain_text("LookupError")
    expect(page.locator("#example")).to_contain_text("has no address")
    gate.has_address = True  # the next release repairs it
    _tab_to(page, "Retry 2…")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("Retry 2 jobs?")
    _tab_to(page, "Retry 2")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("2 jobs with")
    site.drain()
    assert {job.refresh().status for job in (first, second)} == {JobState.COMPLETED}
    _tab_to(page, "mark")
    expect(page.locator("button:focus")).to_have_text("Resolve LookupError")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("resolved")
    assert [row.status for row in site.app.errors.list(tenant=ALL_TENANTS)] == ["resolved"]


def test_shortcuts_search_move_and_open(site_windows: SiteWindows) -> None:
    site = site_windows.site
    jobs = [site.enqueue("send", to=f"reader {number}") for number in range(3)]
    window = site_windows.window(role="viewer")
    window.page.clock.set_fixed_time(
        datetime.now(UTC)
    )  # so that both keys count as one shortcut on a slow machine
    page = window.open("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(f"{site.url}/jobs")
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("j")
    expect(page.locator("[data-search]")).to_have_value("j")
    page.locator("h1").click()
    for key in ("j", "j", "k", "j", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(f"{site.url}/jobs/{jobs[1].id}")


@BOTH
def test_a_viewer_sees_no_buttons_that_change_anything(site_windows: SiteWindows, script: bool) -> None:
    site = site_windows.site
    failed, review = site.enqueue("fail", words="gone"), site.enqueue("look", what="x")
    site.drain()
    schedule = site.app.schedules.add("send", "0 6 * * *", "letters", args={"to": "ada"})
    window = site_windows.window(role="viewer", script=script)
    for path in (
        "/", "/jobs", "/errors", f"/jobs/{failed.id}", f"/jobs/{review.id}", "/schedules", f"/schedules/{schedule.id}", "/tasks",
        "/tasks/send", "/queues", "/workers", "/tenants",
    ):  # fmt: skip
        page = window.open(path)
        expect(page.locator("h1").first).to_be_visible()
        # Views and columns are the reader's own.
        posts = page.locator("main form[method=post]:not([action$='/jobs/view'])")
        assert [
            each.get_attribute("action") for each in posts.all() if each.locator("button").count()
        ] == [], path
        assert page.locator("main input[data-row]").count() == 0, path


def _until(true: object, page: Page) -> None:
    assert callable(true)
    for _ in range(PATIENCE // 50):
        if true():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not happen")


@pytest.mark.parametrize("role", ["viewer", "operator", "super_admin"])
def test_rows_of_the_jobs_page_change_while_it_is_open(site_windows: SiteWindows, role: str) -> None:
    site = site_windows.site
    first = site.enqueue("send", to="ada")
    page = site_windows.window(role=role).open("/jobs")
    row = page.locator(f'tr[data-href$="{first.id}"]')
    expect(row.locator("td.note")).to_contain_text("pending")
    site.drain()
    expect(row.locator("td.note")).to_contain_text("completed")
    second = site.enqueue("send", to="grace")
    expect(page.locator("tbody tr").first).to_have_attribute("data-href", re.compile(str(second.id)))


def test_the_jobs_page_fetches_little_while_a_thousand_jobs_change_each_second(
    site_windows: SiteWindows,
) -> None:
    site = site_windows.site
    page = site_windows.window(role="operator").open("/jobs")
    fetched: list[int] = []
    page.on("requestfinished", lambda request: fetched.append(request.sizes()["responseBodySize"]))
    changes, rounds, lags = 1_000, 15, []
    send = site.app.bound_task("send")
    began = time.monotonic()
    for number in range(1, rounds + 1):
        last = list(send.enqueue_many({"to": "ada"} for _ in range(changes)))[-1]
        enqueued_at = time.monotonic()
        page.wait_for_function(
            "id => document.querySelector('tbody tr')?.dataset.href.endsWith(id)",
            arg=str(last.id),
            polling=20,
        )
        lags.append(time.monotonic() - enqueued_at)
        page.wait_for_timeout(max(began + number - time.monotonic(), 0) * 1000)  # one round per second
    lasted, lag = time.monotonic() - began, statistics.median(lags)
    print(
        f"{rounds * changes / lasted:,.0f} changes/s, {len(fetched) / lasted:.1f} requests/s,"
        f" {sum(fetched) / lasted:,.0f} bytes/s, rows follow in {lag:.2f} s (at most {max(lags):.2f} s)"
    )
    assert len(fetched) >= rounds / 2
    assert sum(fetched) / lasted <= 10_000
    assert lag < max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # scaled by the load of the machine
