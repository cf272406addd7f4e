"""Typical tasks of each role in a real browser, with the keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, served
from tests.interfaces.rest.kit import declare

from tidemill import App, JobState
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)

ROLES = pytest.mark.parametrize("role", [role.value for role in Role])
REFUSED = "The role viewer only reads; changing jobs needs the role operator."


class Warehouse:
    """A task that fails until it is repaired."""

    def __init__(self) -> None:
        self.has_address = False

    def declare(self, app: App) -> None:
        declare(app)

        @app.task(name="ship", retry=None)
        def ship(order: int) -> str:
            if not self.has_address:
                raise LookupError(f"order {order} has no address")
            return "on its way"


@pytest.fixture
def warehouse() -> Warehouse:
    return Warehouse()


@pytest.fixture
def site(warehouse: Warehouse) -> Iterator[Served]:
    with served(tasks=warehouse.declare) as made:
        yield made


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the control with this name, or the link or button with this text, has the focus."""
    assert reaches(page, name), f"Tab does not reach {name}"


def reaches(page: Page, name: str) -> bool:
    """Whether Tab reaches a control; it passes all controls of a page."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if (
            page.evaluate("(document.activeElement.name || document.activeElement.textContent).trim()")
            == name
        ):
            return True
    return False


@ROLES
def test_a_failed_job_is_found_by_an_argument_and_retried_or_refused(
    site_windows: SiteWindows, role: str
) -> None:
    site = site_windows.site
    job, other = site.enqueue("fail", words="lighthouse"), site.enqueue("fail", words="harbour")
    site.drain()
    page = site_windows.window(role=role).open("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("arg.words:lighthouse")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("body").press("j")
    page.keyboard.press("r")
    if role == "viewer":
        expect(page.get_by_role("alert")).to_have_text(REFUSED)
        page.keyboard.press("Enter")
        expect(page.locator("#acts")).to_have_text(REFUSED)
        expect(page.locator("main")).to_contain_text("lighthouse")
        assert job.refresh().status == JobState.FAILED
    else:
        expect(page.locator(".toast")).to_contain_text("pending again")
        assert job.refresh().status == JobState.PENDING
    assert other.refresh().status == JobState.FAILED


@ROLES
def test_why_a_job_waits_is_found(site_windows: SiteWindows, role: str) -> None:
    site = site_windows.site
    site.app.control.pause("queue", "mail", reason="the provider is down")
    job = site.enqueue("send", to="ada")
    page = site_windows.window(role=role).open("/")
    page.keyboard.press("Control+k")
    page.keyboard.type(str(job.id)[-12:])
    expect(page.locator("#palette li").first).to_contain_text("job id")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(str(job.id)))
    expect(page.locator("main")).to_contain_text("the provider is down")


@ROLES
def test_a_review_is_approved_or_refused(site_windows: SiteWindows, role: str) -> None:
    site = site_windows.site
    job = site.enqueue("look", what="the cover")
    site.drain()
    page = site_windows.window(role=role).open("/jobs?status=review_needed")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("is this right?")
    if role == "viewer":
        expect(page.locator("#acts")).to_have_text(REFUSED)
        assert not reaches(page, "Approve…")
        assert job.refresh().status == JobState.REVIEW_NEEDED
        return
    tab_to(page, "Approve…")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("it is")
    page.keyboard.press("Enter")
    expect(page.locator("main .badge").first).to_have_text("completed")
    assert (job.refresh().status, job.refresh().reason) == (JobState.COMPLETED, "it is")


@ROLES
def test_a_schedule_is_moved_into_the_hour_of_a_clock_change_or_refused(
    site_windows: SiteWindows, role: str
) -> None:
    site = site_windows.site
    made = site.app.schedules.add("send", "0 6 * * *", "letters", args={"to": "ada"})
    window = site_windows.window(role=role)
    if not Role(role).allows(Role.ADMIN):
        page = window.open("/schedules")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("letters")
        assert not reaches(page, "Edit")
        window.open(f"/schedules/{made.id}/edit")
        expect(page.locator("main")).to_contain_text("admin")
        assert site.app.schedules.get(made.id).words == made.words
        return
    page = window.open(f"/schedules/{made.id}/edit")
    tab_to(page, "kind")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    tab_to(page, "daily_at")
    page.keyboard.type("02:30")
    expect(page.locator("#preview h2")).to_have_text("At 02:30 every day")
    tab_to(page, "timezone")
    page.keyboard.type("berl")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#preview .clock-changes li").first).to_contain_text("02:30")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("is saved and effective immediately")
    changed = site.app.schedules.get(made.id)
    assert (changed.words, changed.timezone) == ("At 02:30 every day", "Europe/Berlin")


@ROLES
def test_a_regressed_error_is_repaired_or_only_read(
    site_windows: SiteWindows, warehouse: Warehouse, role: str
) -> None:
    site = site_windows.site
    first = site.enqueue("ship", order=1)
    site.drain()
    (group,) = site.app.errors.list(tenant=ALL_TENANTS)
    site.app.errors.resolve(group.fingerprint, tenant=ALL_TENANTS)
    site.app.store.note_deploy("shop", "2")
    second = site.enqueue("ship", order=2)
    site.drain()
    page = site_windows.window(role=role).open("/")
    tab_to(page, "1 resolved error is back")
    page.keyboard.press("Enter")
    expect(page.locator("#kinds")).to_contain_text("since the deploy")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#kind")).to_contain_text("LookupError")
    if role == "viewer":
        assert not reaches(page, "Retry 2…")
        return
    warehouse.has_address = True
    tab_to(page, "Retry 2…")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_contain_text("Retry 2 jobs?")
    tab_to(page, "Retry 2")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("2 jobs with")
    site.drain()
    assert {job.refresh().status for job in (first, second)} == {JobState.COMPLETED}
    tab_to(page, "mark")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("resolved")
    assert [row.status for row in site.app.errors.list(tenant=ALL_TENANTS)] == ["resolved"]
