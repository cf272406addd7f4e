"""The command palette: what it lists, and actions of the page that it starts."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect
from tests.interfaces.dashboard.browser import SiteWindows, apart
from tests.interfaces.dashboard.kit import House

from tidemill import Every


def listed(shop: House, role: str, tenant: str = "*") -> list[list[str]]:
    """The tasks, queues and schedules that the palette of a user has."""
    names: list[list[str]] = json.loads(shop.person(role, tenant).open("/go"))
    return names


def test_the_palette_lists_the_schedules_that_a_user_may_see(shop: House) -> None:
    for tenant in ("acme", "globex"):
        with shop.app.tenant(tenant):
            shop.app.schedules.add("send", Every(timedelta(hours=1)), f"hourly-{tenant}", args={"to": "ada"})
    own = listed(shop, "viewer", "acme")
    assert [name for name, kind, _ in own if kind == "schedule"] == ["hourly-acme"]
    ids = {row.key: str(row.id) for row in shop.app.schedules.list(tenant="*")}
    assert ["hourly-acme", "schedule", f"/schedules/{ids['hourly-acme']}"] in own
    everyone = listed(shop, "admin")
    assert {name for name, kind, _ in everyone if kind == "schedule"} == {"hourly-acme", "hourly-globex"}
    # Only an admin can create one.
    assert ["New schedule", "page", "/schedules/new"] in everyone
    assert "New schedule" not in {name for name, _, _ in listed(shop, "operator")}


def chosen(page: Page, typed: str) -> str:
    """Type into the palette and return its selected line."""
    page.keyboard.press("Control+k")
    page.keyboard.type(typed)
    line = page.locator("#palette li[aria-selected=true]")
    expect(line).to_contain_text(re.compile(typed, re.IGNORECASE))
    return line.inner_text()


@pytest.mark.browser
def test_the_palette_opens_a_schedule_and_runs_and_pauses_it(site_windows: SiteWindows) -> None:
    site = site_windows.site
    made = apart(
        lambda: site.app.schedules.add("send", Every(timedelta(hours=1)), "hourly-letter", args={"to": "ada"})
    )
    page = site_windows.window(role="admin").open("/")
    assert "schedule" in chosen(page, "hourly-letter")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/schedules/{made.id}$"))
    assert "action" in chosen(page, "edit")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/schedules/{made.id}/edit$"))
    page.go_back()
    assert "action" in chosen(page, "pause")
    page.keyboard.press("Enter")
    # The action asks for a reason, in the place where its button is.
    expect(page.locator("#palette")).to_be_hidden()
    expect(page.locator(".title details[open] input[name=reason]")).to_be_visible()


@pytest.mark.browser
def test_the_palette_of_a_viewer_has_no_actions(site_windows: SiteWindows) -> None:
    page = site_windows.window(role="viewer").open("/schedules")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette li").first).to_be_visible()
    assert "action" not in page.locator("#palette li span").all_inner_texts()
