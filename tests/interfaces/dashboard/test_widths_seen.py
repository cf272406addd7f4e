"""Every page in a real browser at every width, with much to show and with nothing: none scrolls sideways, and none clips its cards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.interfaces.dashboard.browser import PATIENCE, Desk, Served, Window, apart, served
from tests.interfaces.dashboard.showroom import Showroom, beginning
from tests.interfaces.dashboard.tour import Things, addresses, showroom_things

from tidemill.dashboard.site import all_pages

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)

PATHS = sorted({page.path for page in all_pages() if page.method == "GET"} - {"/live"})
WIDTHS = (360, 768, 1600)
PARTS = 2
"""The pages are looked at in so many tests, which may go on side by side."""

_CLIPPED = """
() => [...document.querySelectorAll("main .card, main .tile")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.id || each.className} is ${each.scrollWidth} wide on ${each.clientWidth}`)
"""


@pytest.fixture(params=["full", "empty"])
def shown(request: pytest.FixtureRequest) -> Iterator[tuple[Served, Things | None]]:
    """A site, and what there is to see on it; None where there is nothing."""
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
    """What is too wide on a page, with everything unfolded."""
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
def test_no_page_scrolls_sideways(shown: tuple[Served, Things | None], desk: Desk, part: int) -> None:
    _, things = shown
    person, stranger, wrong = desk.window(), desk.window(role=None), []
    for path in PATHS[part::PARTS]:
        if things is None and "{" in path:
            continue
        for address in [path] if things is None else addresses(path, things):
            wrong += wrong_at(stranger if path == "/sign-in" else person, address)
    assert wrong == []


@pytest.mark.parametrize("shown", ["empty"], indirect=True)
def test_what_is_too_wide_is_seen(desk: Desk) -> None:
    window = desk.window()
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
def test_the_menu_of_pages_follows_a_window_that_becomes_narrow_or_wide(desk: Desk) -> None:
    page = desk.window().open("/")
    link = page.get_by_role("link", name="Jobs", exact=True)
    expect(link).to_be_visible()
    page.set_viewport_size({"width": 360, "height": 800})
    expect(link).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(link).to_be_visible()


@pytest.mark.parametrize("shown", ["full"], indirect=True)
def test_the_table_of_jobs_never_scrolls_inside_its_card(desk: Desk) -> None:
    page = desk.window().open("/jobs")
    wide = "[...document.querySelectorAll('.scroll')].map((each) => each.scrollWidth - each.clientWidth)"
    for width in (360, 768, 961, 1024, 1100, 1160, 1169, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate(wide) == [0], width


@pytest.mark.parametrize("shown", ["full"], indirect=True)
def test_a_card_of_a_scheduled_job_says_when_it_is_due(desk: Desk) -> None:
    page = desk.window().open("/jobs?state=scheduled")
    page.set_viewport_size({"width": 360, "height": 800})
    due = page.locator("table.jobs td[data-label=Is]").first
    expect(due).to_be_visible()
    expect(due).to_contain_text("due")
