"""The switch that makes the log of a job follow new lines, in a real browser."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, served

from tidemill import App, Context

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)

LINES = 60

_AT_END = "() => { const log = document.querySelector('#log'); return log.scrollTop > 0 && log.scrollTop + log.clientHeight >= log.scrollHeight - 8; }"

# The browser scrolls by a key smoothly.
_WHEN_STILL = """
() => new Promise((done) => {
  const log = document.querySelector("#log");
  const look = (before) => requestAnimationFrame(() => setTimeout(() => log.scrollTop === before ? done(before) : look(log.scrollTop), 100));
  look(-1);
})
"""


class Talk:
    """A task that writes more lines each time its gate opens."""

    def __init__(self) -> None:
        self.steps = [threading.Event() for _ in range(4)]

    def declare(self, app: App) -> None:
        @app.task(name="talk", retry=None)
        def talk(ctx: Context) -> None:
            for number, gate in enumerate(self.steps):
                for line in range(LINES):
                    ctx.log(f"part {number} line {line}")
                ctx.progress(number + 1, 4)
                if not gate.wait(PATIENCE / 1000):
                    raise TimeoutError("nobody opened the gate")

    def open(self) -> None:
        for gate in self.steps:
            gate.set()


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    yield made
    made.open()


@pytest.fixture
def site(talk: Talk) -> Iterator[Served]:
    with served(tasks=talk.declare) as made:
        yield made


def has_part(page: Page, number: int) -> None:
    expect(page.locator("#log")).to_contain_text(f"part {number} line {LINES - 1}")


def at_end(page: Page) -> bool:
    found: bool = page.evaluate(_AT_END)
    return found


def switch(page: Page) -> Locator:
    return page.get_by_role("button", name="Follow", exact=True)


def test_the_log_of_a_running_job_follows_until_the_reader_scrolls_up(
    site_windows: SiteWindows, talk: Talk
) -> None:
    site = site_windows.site
    with site.app.worker(grace=0.1):
        job = site.enqueue("talk")
        page = site_windows.window(role="viewer").open(f"/jobs/{job.id}")
        expect(switch(page)).to_have_attribute("aria-pressed", "true")
        has_part(page, 0)
        page.wait_for_function(_AT_END)
        talk.steps[0].set()
        has_part(page, 1)
        page.wait_for_function(_AT_END)

        page.locator("#log").focus()
        page.keyboard.press("PageUp")
        expect(switch(page)).to_have_attribute("aria-pressed", "false")
        expect(page.get_by_role("status").filter(has_text="no longer follows")).to_have_count(1)
        top = page.evaluate(_WHEN_STILL)
        talk.steps[1].set()
        has_part(page, 2)
        assert page.locator("#log").evaluate("(log) => log.scrollTop") == top

        switch(page).focus()
        page.keyboard.press("Enter")
        expect(switch(page)).to_have_attribute("aria-pressed", "true")
        assert at_end(page)
        talk.steps[2].set()
        has_part(page, 3)
        page.wait_for_function(_AT_END)
        talk.open()


def test_the_switch_is_remembered_and_has_a_key(site_windows: SiteWindows, talk: Talk) -> None:
    site = site_windows.site
    with site.app.worker(grace=0.1):
        job, other = site.enqueue("talk"), site.enqueue("talk")
        page = site_windows.window(role="viewer").open(f"/jobs/{job.id}")
        has_part(page, 0)
        page.keyboard.press("f")
        expect(switch(page)).to_have_attribute("aria-pressed", "false")
        page.reload()
        expect(switch(page)).to_have_attribute("aria-pressed", "false")
        page.goto(f"{site.url}/jobs/{other.id}")
        expect(switch(page)).to_have_attribute("aria-pressed", "true")
        talk.open()


@pytest.mark.parametrize("script", [True, False])
def test_an_ended_job_and_a_page_without_script_have_no_switch(
    site_windows: SiteWindows, talk: Talk, script: bool
) -> None:
    site = site_windows.site
    running = site.enqueue("talk")
    window = site_windows.window(role="viewer", script=script)
    expect(window.open(f"/jobs/{running.id}").locator("#follow")).to_be_visible(visible=script)
    talk.open()
    site.drain()
    page = window.open(f"/jobs/{running.id}")
    has_part(page, 3)
    expect(page.locator("#follow")).to_have_count(0)


def test_older_lines_have_no_switch(site_windows: SiteWindows, talk: Talk) -> None:
    site = site_windows.site
    with site.app.worker(grace=0.1):
        job = site.enqueue("talk")
        page = site_windows.window(role="viewer").open(f"/jobs/{job.id}")
        has_part(page, 0)
        page.goto(f"{site.url}/jobs/{job.id}?before=5")
        expect(page.locator("#log")).to_contain_text("part 0 line 0")
        expect(page.locator("#follow")).to_have_count(0)
        talk.open()
