"""Accessibility of every page by axe-core, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest
from tests.interfaces.dashboard.browser import SIZES, Served, SiteWindows, Theme, apart, served
from tests.interfaces.dashboard.programs import axe_script
from tests.interfaces.dashboard.showroom import Showroom, beginning
from tests.interfaces.dashboard.tour import NO_PAGES, Things, addresses, showroom_things
from tests.servers.processes import ServiceMissing
from tests.services import go_without

from tidemill.dashboard.site import all_pages

pytestmark = [pytest.mark.browser, pytest.mark.long]

PATHS = sorted({page.path for page in all_pages() if page.method == "GET"} - NO_PAGES)
PARTS = 3

_JUDGE = """
async () => {
  const found = await axe.run(document, { resultTypes: ["violations"] });
  return found.violations
    .filter((each) => ["serious", "critical"].includes(each.impact))
    .map((each) => `${each.id} (${each.impact}): ${each.help}: ` +
      each.nodes.slice(0, 4).map((node) => `${node.html.slice(0, 160)} ${node.any.map((any) => any.message).join(" ").slice(0, 200)}`).join(" | "));
}
"""


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        return axe_script()
    except ServiceMissing as missing:
        go_without("axe-core", missing)


@pytest.fixture
def shown() -> Iterator[tuple[Served, Things]]:
    rooms: list[Showroom] = []
    with served(tasks=lambda app: rooms.append(Showroom(app)), clock=beginning()) as site:
        apart(rooms[0].fill)
        yield site, showroom_things(site.app)


@pytest.fixture
def site(shown: tuple[Served, Things]) -> Served:
    return shown[0]


@pytest.mark.parametrize("part", range(PARTS))
def test_no_page_has_a_serious_or_critical_violation(
    axe: str, shown: tuple[Served, Things], site_windows: SiteWindows, part: int
) -> None:
    stranger, person, wrong = site_windows.window(role=None), site_windows.window(), []
    for path in PATHS[part::PARTS]:
        window = stranger if path == "/sign-in" else person
        for address in addresses(path, shown[1]):
            page = window.open(address)
            page.evaluate(axe)
            page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
            for theme in get_args(Theme):
                page.emulate_media(color_scheme=theme)
                for size, (width, height) in SIZES.items():
                    page.set_viewport_size({"width": width, "height": height})
                    found: list[str] = page.evaluate(_JUDGE)
                    wrong += [f"{address} {theme} {size}: {each}" for each in found]
    assert wrong == []


def test_an_inaccessible_element_is_detected(axe: str, site_windows: SiteWindows) -> None:
    page = site_windows.window().open("/")
    page.evaluate(axe)
    page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert any("button-name" in each for each in page.evaluate(_JUDGE))
