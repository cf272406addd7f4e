from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interfaces.dashboard.kit import House, house
from tests.servers.processes import ServiceMissing
from tests.services import go_without

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.interfaces.dashboard.browser import Served, SiteWindows

_failed = pytest.StashKey[bool]()


@pytest.fixture
def shop() -> Iterator[House]:
    with house() as made:
        yield made


# A real browser
# ----------------------------------------------------------------------------------------------------------
#
# One per test file: Playwright runs an event loop in this thread, so no other test could start its own.


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser, or a reported skip."""
    from tests.interfaces.dashboard import browser

    try:
        opened = browser.chromium()
        made = opened.__enter__()
    except ServiceMissing as missing:
        go_without("chromium", missing)
    try:
        yield made
    finally:
        opened.__exit__(None, None, None)


@pytest.fixture
def site() -> Iterator[Served]:
    """A new site for each test; a test file may override this fixture."""
    from tests.interfaces.dashboard.browser import served

    with served() as made:
        yield made


@pytest.fixture
def site_windows(
    chromium: Browser, site: Served, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[SiteWindows]:
    """Windows on the site. A problem in a window fails the test, and a failed test saves screenshots."""
    from tests.interfaces.dashboard.browser import SiteWindows

    made = SiteWindows(chromium, site)
    try:
        yield made
        troubles = made.troubles()
        if troubles or request.node.stash.get(_failed, False):
            pictures = made.screenshots(tmp_path / "screens")
            request.node.add_report_section("teardown", "pictures", "\n".join(map(str, pictures)))
        if troubles:
            pytest.fail("in the browser:\n" + "\n".join(troubles), pytrace=False)
    finally:
        made.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Record that a test failed, for the fixtures that are torn down after it."""
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report
