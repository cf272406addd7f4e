"""A whole single sign-on in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, served
from tests.interfaces.oidc_provider import CLIENT, TestProvider, provider

from tidemill.rest import Oidc

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def op() -> Iterator[TestProvider]:
    with provider() as made:
        yield made


@pytest.fixture
def site(op: TestProvider) -> Iterator[Served]:
    oidc = Oidc(issuer=op.issuer, client_id=CLIENT, client_secret="s3cret", roles={"ops": "operator"})
    with served(oidc=oidc) as made:
        yield made


def test_a_person_signs_in_at_the_provider_works_and_signs_out(
    site_windows: SiteWindows, site: Served, op: TestProvider
) -> None:
    window = site_windows.window(role=None)
    window.allow("net::ERR")  # the provider's page loads a style sheet from the network
    page = window.open("/jobs")
    assert page.url.startswith(op.issuer)
    page.fill("input[name=sub]", "ann")
    page.get_by_role("button", name="Authorize").click()
    page.wait_for_url(f"{site.url}/jobs", timeout=PATIENCE)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    (session,) = site.app.sessions.list()
    assert session.subject == "ann"
    # A page that only continues is not loaded a second time: the provider's answer is valid once.
    assert not [record for record in site.app.audit.list(tenant="*") if "refused" in record.entry.action]
    page.locator("details.me summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{op.issuer}/oauth2/end_session**", timeout=PATIENCE)
    assert site.app.sessions.list() == []
    window.open("/sign-in")
    expect(page.get_by_role("link", name="Sign in with single sign-on")).to_be_visible()
