"""A whole single sign-on in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from joserfc import jwt
from playwright.sync_api import expect
from tests.interfaces.dashboard.browser import PATIENCE, Served, SiteWindows, served
from tests.interfaces.oidc_provider import CLIENT, Claims, TestProvider, provider

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


def test_a_person_with_a_wrong_answer_of_the_provider_is_not_signed_in(
    site_windows: SiteWindows, site: Served, op: TestProvider
) -> None:
    window = site_windows.window(role=None)
    window.allow("net::ERR", "403")
    answers: list[str] = []

    window.page.on("request", lambda request: answers.append(request.url))

    def sign_in(until: str) -> str:
        page = window.open("/jobs")
        page.fill("input[name=sub]", "ann")
        page.get_by_role("button", name="Authorize").click()
        page.wait_for_url(until, timeout=PATIENCE)
        return str(page.locator("main").inner_text())

    callback = f"{site.url}/sign-in/callback?**"

    wrong: dict[str, Callable[[Claims], Claims]] = {
        "nonce": lambda claims: {**claims, "nonce": "other"},
        "expired": lambda claims: {**claims, "exp": 1, "iat": 0},
        "audience": lambda claims: {**claims, "aud": "other"},
    }
    for what, tamper in wrong.items():
        op.tamper = tamper
        assert "You are not signed in" in sign_in(callback), what
    op.tamper = None
    assert site.app.sessions.list() == []
    # The new key of the provider is accepted, and from then on its old one is refused.
    old = op.rotate()
    sign_in(f"{site.url}/jobs")
    assert len(site.app.sessions.list()) == 1
    back = [url for url in answers if "/sign-in/callback?" in url][-1]
    page = window.open(back.removeprefix(site.url))
    assert "You are not signed in" in page.locator("main").inner_text(), "a code that was used before"
    assert len(site.app.sessions.list()) == 1
    window.page.context.clear_cookies()
    op.sign = lambda claims: jwt.encode({"alg": "RS256", "kid": old.kid}, claims, old)
    assert "You are not signed in" in sign_in(callback), "a key that the provider has replaced"
    assert len(site.app.sessions.list()) == 1
    refused = [r for r in site.app.audit.list(tenant="*") if r.entry.action == "session.refused"]
    assert refused
