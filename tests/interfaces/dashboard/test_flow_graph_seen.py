"""The graph of a flow in a real browser: its size, moving it, folds, and its small map."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, apart, served

from tidemill import App, NoRetry
from tidemill.errors import PermanentError

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)

PARTS = 45


def declare(app: App) -> None:
    @app.task(name="load", retry=NoRetry())
    def load(number: int) -> int:
        if number == 7:
            raise PermanentError("the file is broken")
        return number


@pytest.fixture
def site() -> Iterator[Served]:
    with served(tasks=declare) as made:
        yield made


def start(site: Served) -> str:
    """Start a flow with a wide layer, and return the path of its page."""

    def begin() -> Any:
        load = site.app.bound_task("load")
        with site.app.tenant("acme"):
            flow = site.app.flow("orders")
            first = flow.add(load, number=-1).named("first")
            parts = [flow.add(load, number=at).named(f"load-{at}").after(first) for at in range(PARTS)]
            flow.add(load, number=-2).named("last").after(*parts)
            return flow.start()

    return f"/flows/{apart(begin).id}"


def width(page: Page) -> int:
    return int(page.locator("svg.flow").get_attribute("width") or 0)


def test_the_keyboard_changes_the_size_and_moves_the_graph(site_windows: SiteWindows) -> None:
    path = start(site_windows.site)
    page = site_windows.window(role="viewer").open(f"{path}?folds=off")
    natural = width(page)
    page.locator("#graph-view").focus()
    page.keyboard.press("-")
    assert width(page) == natural * 75 // 100
    page.keyboard.press("0")
    picture, view = page.locator("svg.flow").bounding_box(), page.locator("#graph-view").bounding_box()
    assert picture is not None
    assert view is not None
    assert picture["height"] <= view["height"]
    expect(page.locator(".graph-map")).to_be_hidden()
    for _ in range(4):
        page.keyboard.press("+")
    expect(page.locator(".graph-map")).to_be_visible()
    page.evaluate("document.querySelector('#graph-view').scrollTop = 0")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.querySelector('#graph-view').scrollTop > 0")


def test_the_wheel_changes_the_size_only_with_a_modifier(site_windows: SiteWindows) -> None:
    path = start(site_windows.site)
    page = site_windows.window(role="viewer").open(f"{path}?folds=off")
    natural = width(page)
    page.locator("#graph-view").hover()
    page.mouse.wheel(0, 100)
    page.wait_for_function("() => scrollY > 0 || document.querySelector('#graph-view').scrollTop > 0")
    assert width(page) == natural
    page.keyboard.down("Control")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Control")
    page.wait_for_function(f"() => document.querySelector('svg.flow').getAttribute('width') < {natural}")


def test_a_drag_moves_the_graph_and_opens_nothing(site_windows: SiteWindows) -> None:
    path = start(site_windows.site)
    page = site_windows.window(role="viewer").open(f"{path}?folds=off")
    page.locator("#graph-view").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#graph-view').scrollTop = 200")
    box = page.locator("svg.flow a .box").nth(5).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] - 60, steps=3)
    page.mouse.up()
    page.wait_for_function("() => document.querySelector('#graph-view').scrollTop > 200")
    assert "/jobs/" not in page.url


def test_the_small_map_moves_the_view(site_windows: SiteWindows) -> None:
    path = start(site_windows.site)
    page = site_windows.window(role="viewer").open(f"{path}?folds=off")
    box = page.locator(".graph-map").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] - 8)
    page.wait_for_function("() => document.querySelector('#graph-view').scrollTop > 1000")


def test_the_chosen_size_survives_an_update_and_a_reload(site_windows: SiteWindows) -> None:
    path = start(site_windows.site)
    page = site_windows.window(role="viewer").open(path)
    natural = width(page)
    page.get_by_role("link", name="Smaller").click()
    expect(page.locator("[data-percent]")).to_have_text("75 %")
    site_windows.site.drain()
    expect(page.locator("svg.flow .s-failed").first).to_be_visible()
    # The first and last node, the failed one, and a box for the others.
    expect(page.locator("svg.flow .box")).to_have_count(4)
    assert width(page) == natural * 75 // 100
    page.reload()
    assert width(page) == natural * 75 // 100


def test_without_script_links_change_the_size_and_the_folds(site_windows: SiteWindows) -> None:
    path = start(site_windows.site)
    site_windows.site.drain()
    page = site_windows.window(role="viewer", script=False).open(path)
    natural = width(page)
    expect(page.locator("svg.flow .box")).to_have_count(4)
    expect(page.locator("svg.flow")).to_contain_text("44 nodes")
    page.get_by_role("link", name="Larger").click()
    assert width(page) == natural * 150 // 100
    page.get_by_role("link", name="Show all nodes").click()
    expect(page.locator("svg.flow .box")).to_have_count(PARTS + 2)
    page.get_by_role("link", name="Fit").click()
    box = page.locator("svg.flow").bounding_box()
    assert box is not None
    assert box["height"] <= 800
    page.get_by_role("link", name="Fold wide layers").click()
    expect(page.locator("svg.flow .box")).to_have_count(4)
