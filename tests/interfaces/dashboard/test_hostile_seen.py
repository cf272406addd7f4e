"""Hostile texts in a real browser: script execution and overflow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interfaces.dashboard.browser import Served, SiteWindows, apart, served
from tests.interfaces.dashboard.planting import World
from tests.interfaces.dashboard.tour import NO_PAGES

from tidemill.dashboard.site import all_pages

pytestmark = [pytest.mark.browser, pytest.mark.long]

PATHS = sorted(
    {page.path for page in all_pages() if page.method == "GET" and page.role is not None} - NO_PAGES
)
PARTS = 3
"""The number of tests that share the pages, so that they can run in parallel."""


@pytest.fixture
def world() -> Iterator[tuple[World, Served]]:
    worlds: list[World] = []
    with served(tasks=lambda app: worlds.append(World(app))) as site:
        (made,) = worlds
        apart(made.plant)
        with made.working():
            yield made, site


@pytest.fixture
def site(world: tuple[World, Served]) -> Served:
    return world[1]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_page_runs_a_hostile_text_or_overflows(
    world: tuple[World, Served], site_windows: SiteWindows, part: int
) -> None:
    made, _ = world
    window, wrong = site_windows.window(), []
    for path in PATHS[part::PARTS]:
        for address in made.addresses(path):
            page = window.open(address, wait="domcontentloaded")
            page.evaluate(
                "for (const each of document.querySelectorAll('details:not([data-menu])')) each.open = true"
            )
            for width, height in ((1280, 800), (390, 844)):
                page.set_viewport_size({"width": width, "height": height})
                wrong += [f"{address} at {width}: {each}" for each in window.overflow()]
            wrong += [f"{address}: a script ran" for _ in window.hits()]
    assert wrong == []


def test_overflow_and_injected_scripts_are_detected(site_windows: SiteWindows) -> None:
    window = site_windows.window()
    page = window.open("/")
    assert (window.overflow(), window.hits()) == ([], [])
    page.evaluate("""() => {
        const wide = document.createElement("div");
        wide.id = "wide";
        wide.textContent = "w".repeat(5000);
        wide.className = "nowrap";
        document.body.append(wide);
        const image = document.createElement("img");
        image.setAttribute("onerror", "hits.push(1)");
        image.src = "data:,";
        document.body.append(image);
    }""")
    assert any("div#wide" in each for each in window.overflow())
    for _ in range(200):
        if window.troubles:
            break
        page.wait_for_timeout(20)
    assert any("policy: script-src-attr" in trouble for trouble in window.troubles)
    assert window.hits() == []
    page.evaluate("hits.push('ran')")
    assert window.hits() == ["ran"]
    window.troubles.clear()
