"""Overflow and clipping on every page and width, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, Window, apart, served
from tests.interfaces.dashboard.showroom import Showroom, beginning
from tests.interfaces.dashboard.tour import NO_PAGES, Things, addresses, showroom_things

from tidemill.dashboard.site import all_pages
from tidemill.domain.job import NewJob
from tidemill.ids import new_id

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)

PATHS = sorted({page.path for page in all_pages() if page.method == "GET"} - NO_PAGES)
WIDTHS = (360, 768, 1600)
PARTS = 2
"""The number of tests that share the pages, so that they can run in parallel."""

_CLIPPED = """
() => [...document.querySelectorAll("main .card, main .tile")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.id || each.className} is ${each.scrollWidth} wide on ${each.clientWidth}`)
"""


@pytest.fixture(params=["full", "empty"])
def shown(request: pytest.FixtureRequest) -> Iterator[tuple[Served, Things | None]]:
    """A site and its objects; ``None`` for an empty site."""
    rooms: list[Showroom] = []
    if request.param == "empty":
        with served(tasks=lambda app: None) as site:
            yield site, None
        return
    with served(tasks=lambda app: rooms.append(Showroom(app)), clock=beginning()) as site:
        apart(rooms[0].fill)
        yield site, showroom_things(site.app)


@pytest.fixture
def site(shown: tuple[Served, Things | None]) -> Served:
    return shown[0]


def wrong_at(window: Window, address: str) -> list[str]:
    """The elements of a page that are too wide when all details are open."""
    page, found = window.open(address), []
    page.evaluate("for (const each of document.querySelectorAll('main details')) each.open = true")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        found += [f"{address} at {width}: {each}" for each in window.overflow()]
        found += [f"{address} at {width}: {beyond} too wide"] if beyond > 0 else []
        found += [f"{address} at {width}: {each}" for each in page.evaluate(_CLIPPED)]
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_no_page_scrolls_sideways(
    shown: tuple[Served, Things | None], site_windows: SiteWindows, part: int
) -> None:
    _, things = shown
    person, stranger, wrong = site_windows.window(), site_windows.window(role=None), []
    for path in PATHS[part::PARTS]:
        if things is None and "{" in path:
            continue
        for address in [path] if things is None else addresses(path, things):
            wrong += wrong_at(stranger if path == "/sign-in" else person, address)
    assert wrong == []


@pytest.mark.parametrize("shown", ["empty"], indirect=True)
def test_an_element_that_is_too_wide_is_detected(site_windows: SiteWindows) -> None:
    window = site_windows.window()
    window.page.add_init_script("""addEventListener("DOMContentLoaded", () => {
        const card = document.createElement("div");
        card.className = "card nowrap";
        card.textContent = "w".repeat(900);
        document.querySelector("main").append(card);
    })""")
    wrong = wrong_at(window, "/")
    for width in WIDTHS:
        assert any(f"/ at {width}: card nowrap is" in each for each in wrong), wrong
        assert any(f"/ at {width}: " in each and each.endswith("too wide") for each in wrong), wrong


@pytest.mark.parametrize("shown", ["empty"], indirect=True)
def test_the_menu_follows_a_window_that_becomes_narrow_or_wide(site_windows: SiteWindows) -> None:
    page = site_windows.window().open("/")
    link = page.get_by_role("link", name="Jobs", exact=True)
    expect(link).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 800})
    expect(link).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(link).to_be_visible()


@pytest.mark.parametrize("shown", ["full"], indirect=True)
@pytest.mark.parametrize("names", ["usual", "long"])
def test_the_jobs_table_never_scrolls_inside_its_card(
    site: Served, site_windows: SiteWindows, names: str
) -> None:
    if names == "long":
        word = "a_name_that_is_as_long_as_names_in_large_applications_become"
        jobs = [NewJob(new_id(), word, queue=f"{word}{n}", tenant=f"{word}{n}") for n in range(3)]
        apart(lambda: site.app.store.enqueue(jobs))
    page = site_windows.window().open("/jobs")
    wide = "(() => { const card = document.getElementById('list'); return card.scrollWidth - card.clientWidth })()"
    tall = "Math.max(...[...document.querySelectorAll('.jobs tbody tr')].map((each) => each.offsetHeight))"
    for width in (360, 768, 961, 1024, 1100, 1280, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(wide) == 0, width
        # A table has one line per row; long texts are cut.
        assert width < 961 or page.evaluate(tall) <= 35, width


@pytest.mark.parametrize("shown", ["full"], indirect=True)
def test_a_tenant_name_in_the_audit_log_is_not_wrapped(site: Served, site_windows: SiteWindows) -> None:
    def act() -> None:
        with site.app.tenant("default"):
            site.app.schedules.add("remind", "0 2 * * *", "nightly", args={"who": "ada"})

    apart(act)
    page = site_windows.window().open("/audit")
    cell = page.locator("table.audit td[data-label=Tenant]", has_text="default").first
    for width in (961, 1024, 1169, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        lines = cell.evaluate(
            "(each) => { const text = document.createRange(); text.selectNodeContents(each); return text.getClientRects().length }"
        )
        assert lines == 1, width


@pytest.mark.parametrize("shown", ["full"], indirect=True)
def test_a_scheduled_job_on_a_card_shows_when_it_is_due(site_windows: SiteWindows) -> None:
    page = site_windows.window().open("/jobs?status=scheduled")
    page.set_viewport_size({"width": 360, "height": 800})
    due = page.locator("table.jobs td[data-label=Due]").first
    expect(due).to_be_visible()
    # The clock of the site is behind that of the browser.
    expect(due).to_contain_text(re.compile(r"\d+ (d|h|min|s)\b"))
