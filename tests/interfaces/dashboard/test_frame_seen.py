"""The page frame in a real browser: sign-in, shortcuts, themes, live updates."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect
from tests.interfaces.dashboard.browser import PATIENCE, SiteWindows

pytestmark = [pytest.mark.browser, pytest.mark.long]

expect.set_options(timeout=PATIENCE)


def tile(page: Page, name: str) -> str:
    """The number on a tile of the overview."""
    return page.locator(".counts a").filter(has_text=re.compile(rf"{name}$")).locator("strong").inner_text()


@pytest.mark.parametrize("script", [True, False])
def test_sign_in_leads_to_the_requested_page_and_sign_out_ends_the_session(
    site_windows: SiteWindows, script: bool
) -> None:
    window = site_windows.window(role=None, script=script)
    page = window.open("/?window=24h")
    expect(page).to_have_title(re.compile("Sign in"))
    field = page.get_by_label("Key, or the token")
    expect(field).to_be_focused()
    field.fill("nonsense")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid key or token")
    page.get_by_label("Key, or the token").fill(site_windows.site.key("operator"))
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site_windows.site.url}/?window=24h")
    page.locator(".me summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_title(re.compile("Sign in"))
    window.open("/")
    expect(page).to_have_title(re.compile("Sign in"))


def test_shortcuts_open_the_help_and_other_pages(site_windows: SiteWindows) -> None:
    window = site_windows.window()
    window.page.clock.set_fixed_time(
        datetime.now(UTC)
    )  # so that both keys count as one shortcut on a slow machine
    page = window.open("/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page).to_have_url(f"{site_windows.site.url}/workers")
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page).to_have_url(f"{site_windows.site.url}/")


def test_the_first_tab_stop_skips_the_navigation(site_windows: SiteWindows) -> None:
    page = site_windows.window().open("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the page")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize("script", [True, False])
def test_the_theme_can_be_selected_and_is_remembered(site_windows: SiteWindows, script: bool) -> None:
    window = site_windows.window(theme="light", script=script)
    page = window.open("/")
    light = page.locator("body").evaluate("each => getComputedStyle(each).backgroundColor") if script else ""
    page.locator(".me summary").click()
    page.get_by_role("button", name="dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    if script:
        assert page.locator("body").evaluate("each => getComputedStyle(each).backgroundColor") != light
    window.open("/?window=24h")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_on_a_phone_the_pages_are_in_a_menu_that_closes_again(site_windows: SiteWindows) -> None:
    page = site_windows.window(size="phone").open("/")
    link = page.get_by_role("link", name="Jobs", exact=True)
    expect(link).to_be_hidden()
    page.get_by_label("Pages", exact=True).first.click()
    expect(link).to_be_visible()
    page.locator("h1").click(force=True)
    expect(link).to_be_hidden()
    page.get_by_label("Pages", exact=True).first.click()
    link.click()
    expect(page).to_have_url(f"{site_windows.site.url}/jobs")


def test_on_a_phone_without_scripts_the_menu_opens_too(site_windows: SiteWindows) -> None:
    page = site_windows.window(size="phone", script=False).open("/")
    link = page.get_by_role("link", name="Jobs", exact=True)
    if link.is_hidden():
        page.get_by_label("Pages", exact=True).first.click()
    link.click()
    expect(page).to_have_url(f"{site_windows.site.url}/jobs")


def test_a_page_updates_without_a_reload(site_windows: SiteWindows) -> None:
    page = site_windows.window().open("/")
    page.evaluate("window.same = true")
    assert tile(page, "pending") == "0"
    site_windows.site.enqueue("send", to="ada")
    expect(page.locator(".counts .t-pending strong")).to_have_text("1")
    assert page.evaluate("window.same") is True


def test_a_held_page_updates_only_after_it_is_released(site_windows: SiteWindows) -> None:
    page = site_windows.window().open("/")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Held")).to_be_visible()
    other = site_windows.window().open("/")
    site_windows.site.enqueue("send", to="ada")
    expect(other.locator(".counts .t-pending strong")).to_have_text("1")
    assert tile(page, "pending") == "0"
    page.keyboard.press("p")
    expect(page.locator(".counts .t-pending strong")).to_have_text("1")


def test_without_event_streams_the_page_polls(site_windows: SiteWindows) -> None:
    window = site_windows.window()
    window.page.clock.install()
    window.page.route("**/live", lambda route: route.fulfill(status=403))
    page = window.open("/")
    page.evaluate("window.same = true")
    site_windows.site.enqueue("send", to="ada")
    page.clock.fast_forward("00:30")
    expect(page.locator(".counts .t-pending strong")).to_have_text("1")
    assert page.evaluate("window.same") is True


def test_an_unreachable_server_is_reported_until_it_is_back(site_windows: SiteWindows) -> None:
    window = site_windows.window()
    window.allow("Failed to load resource", "ERR_")
    window.page.clock.install()
    page = window.open("/")
    page.route(
        "**/*",
        lambda route: route.abort() if "x-tidemill-live" in route.request.headers else route.continue_(),
    )
    site_windows.site.enqueue("send", to="ada")
    expect(page.locator("#trouble")).to_contain_text("cannot be reached")
    page.unroute("**/*")
    page.clock.fast_forward("00:30")
    expect(page.locator("#trouble")).to_be_hidden()
    expect(page.locator(".counts .t-pending strong")).to_have_text("1")


def test_times_are_shown_in_the_time_zone_of_the_user(site_windows: SiteWindows) -> None:
    job = site_windows.site.enqueue("send", to="ada").id
    page = site_windows.window().open(f"/jobs/{job}")
    shown = page.locator("time[data-time]").first
    expect(shown).to_have_attribute("title", re.compile("UTC"))


def test_an_id_is_copied_without_a_clipboard_and_the_button_keeps_its_label(
    site_windows: SiteWindows,
) -> None:
    job = site_windows.site.enqueue("send", to="ann")
    window = site_windows.window()
    window.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = window.open(f"/jobs/{job.id}")
    button = page.locator('[data-copy="#job-id"]')
    button.click()
    button.click()
    expect(button).to_have_text("Copied")
    expect(button).to_have_text("Copy")
    field = page.get_by_placeholder("all tenants")
    field.focus()
    page.keyboard.press("ControlOrMeta+V")
    expect(field).to_have_value(str(job.id))
