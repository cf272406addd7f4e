"""Sign-in, sign-out, sessions and CSRF protection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interfaces.dashboard.kit import House, house
from tests.interfaces.rest.kit import Browser

from tidemill import App
from tidemill.client.core import client_of
from tidemill.client.sessions import SessionApi
from tidemill.clock import ManualClock
from tidemill.dashboard import create_site
from tidemill.errors import KeyNotFound


@pytest.fixture
def stranger(shop: House) -> Iterator[Browser]:
    browser = Browser(shop.site_app)
    browser.witness = None  # the identity changes with the sign-in
    yield browser
    browser.close()


def test_an_anonymous_user_is_sent_to_the_sign_in_and_back(shop: House, stranger: Browser) -> None:
    answer = stranger.request("GET", "/?window=24h")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2F%3Fwindow%3D24h"
    answer = stranger.request(
        "POST", "/sign-in", data={"key": shop.key("viewer", "acme"), "next": "/?window=24h"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/?window=24h")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert shop.key("viewer", "acme").partition(".")[2] not in cookie
    assert stranger.request("GET", "/").status_code == 200


@pytest.mark.parametrize("wrong", ["", "nonsense", "tm_00000000." + "A" * 43])
def test_a_wrong_key_is_rejected_and_not_repeated(stranger: Browser, wrong: str) -> None:
    answer = stranger.request("POST", "/sign-in", data={"key": wrong})
    assert answer.status_code == 401
    assert "Invalid key or token" in answer.text
    assert not wrong or wrong not in answer.text


@pytest.mark.parametrize("address", ["https://evil.example/", "//evil.example", "/\\evil.example", "/\tx"])
def test_the_sign_in_redirects_to_this_site_only(shop: House, stranger: Browser, address: str) -> None:
    answer = stranger.request("POST", "/sign-in", data={"key": shop.key("viewer", "acme"), "next": address})
    assert answer.headers["location"] == "/"


def test_too_many_wrong_keys_are_rate_limited() -> None:
    with house(login_burst=3, login_rate=0.001) as shop:
        browser = Browser(shop.site_app)
        try:
            codes = [browser.request("POST", "/sign-in", data={"key": "x"}).status_code for _ in range(5)]
            right = browser.request("POST", "/sign-in", data={"key": shop.key("viewer", "acme")}).status_code
        finally:
            browser.close()
    assert codes == [401, 401, 401, 429, 429]
    assert right == 303  # a valid key works behind the same proxy


def test_the_sign_in_page_names_only_ways_that_exist() -> None:
    def page(**how: Any) -> str:
        browser = Browser(create_site(app, **how))
        try:
            return browser.request("GET", "/sign-in").text
        finally:
            browser.close()

    with App("memory://", clock=ManualClock()) as app:
        mounted = page()
        assert "There is no API key yet" in mounted
        assert "tidemill keys create NAME --role super_admin --app MODULE:APP" in mounted
        assert "token" not in mounted
        served = page(token="t0ken")
        assert "or the token that this server printed when it started" in served
        assert "There is no API key yet" not in served
        app.keys.create("ann", role="admin")
        with_a_key = page()
        assert "There is no API key yet" not in with_a_key
        assert "tidemill keys create NAME --role operator --app MODULE:APP" in with_a_key


def test_a_session_ends_with_its_key(shop: House) -> None:
    person = shop.person("operator", "acme")
    (key,) = shop.app.keys.list()
    assert person.ask("GET", "/").status_code == 200
    shop.app.keys.revoke(key.id)
    assert person.ask("GET", "/").status_code == 303


def test_signing_out_ends_the_session(shop: House) -> None:
    person = shop.person("operator", "acme")
    person.send("/", "/sign-out")
    assert person.ask("GET", "/").status_code == 303


def test_a_cookie_from_before_the_sign_out_no_longer_opens_a_page(shop: House) -> None:
    person = shop.person("operator", "acme")
    cookie = {"cookie": f"tidemill_session={person.cookies['tidemill_session']}"}
    replay = Browser(shop.site_app)
    replay.witness = None
    try:
        assert replay.request("GET", "/jobs", headers=cookie).status_code == 200
        person.send("/", "/sign-out")
        replay.cookies.clear()
        assert replay.request("GET", "/jobs", headers=cookie).status_code == 303
    finally:
        replay.close()


def test_the_store_keeps_neither_the_cookie_nor_the_key(shop: House) -> None:
    person = shop.person("operator", "acme")
    cookie = person.cookies["tidemill_session"]
    (session,) = client_of(shop.app).store(None).sessions()
    assert cookie not in repr(session)
    assert session.id != cookie
    assert session.who.endswith("(operator of acme)")
    assert session.key_id is not None


def test_a_session_ends_after_its_lifetime() -> None:
    with house(session_lifetime="10 min", clock=ManualClock()) as shop:
        person = shop.person("operator", "acme")
        assert isinstance(shop.app.clock, ManualClock)
        shop.app.clock.advance("9 min")
        assert person.ask("GET", "/").status_code == 200
        shop.app.clock.advance("1 min")
        assert person.ask("GET", "/").status_code == 303


def test_ending_a_session_by_its_id_signs_that_user_out(shop: House) -> None:
    ann, bob = shop.person("operator", "acme"), shop.person("viewer", "acme")
    sessions = SessionApi(client_of(shop.app))
    (of_ann,) = [session for session in sessions.list() if "operator" in session.who]
    with pytest.raises(KeyNotFound, match="there is no session"):
        sessions.end([of_ann.id[:12], "none"])
    assert [session.id for session in sessions.end([of_ann.id[:12]])] == [of_ann.id]
    shop.site.sessions.api._forget([of_ann.id])  # as after five seconds
    assert ann.ask("GET", "/").status_code == 303
    assert bob.ask("GET", "/").status_code == 200
    (record,) = shop.app.audit.list(tenant="*", action="session.ended")
    assert record.entry.before == {"who": of_ann.who}


def test_the_one_time_token_signs_in_once() -> None:
    with App("memory://", clock=ManualClock()) as app:
        first, second = Browser(create_site(app, token="t0ken")), Browser(create_site(app, token="t0ken"))
        try:
            bearer = {"authorization": "Bearer t0ken"}
            assert first.request("GET", "/api/queues", headers=bearer).status_code == 200
            assert first.request("GET", "/sign-in?token=t0ken").status_code == 303
            assert first.request("GET", "/").status_code == 200
            first.cookies.clear()
            assert first.request("GET", "/sign-in?token=t0ken").status_code == 200  # the form
            assert first.request("POST", "/sign-in", data={"key": "t0ken"}).status_code == 401
            assert first.request("GET", "/api/queues", headers=bearer).status_code == 401
            # Another process of the same store, such as a replaced server.
            assert second.request("POST", "/sign-in", data={"key": "t0ken"}).status_code == 401
        finally:
            first.close()
            second.close()


def test_the_one_time_token_and_its_session_end_with_the_first_key() -> None:
    with App("memory://", clock=ManualClock()) as app:
        browser, other = Browser(create_site(app, token="t0ken")), Browser(create_site(app, token="other"))
        try:
            assert browser.request("GET", "/sign-in?token=t0ken").status_code == 303
            assert browser.request("GET", "/").status_code == 200
            app.keys.create("ann", role="viewer")
            assert browser.request("GET", "/").status_code == 303
            assert other.request("GET", "/sign-in?token=other").status_code == 200  # the form
            assert "token" not in other.request("GET", "/sign-in").text
            bearer = {"authorization": "Bearer other"}
            assert other.request("GET", "/api/queues", headers=bearer).status_code == 401
        finally:
            browser.close()
            other.close()


def test_a_forged_cookie_is_rejected(shop: House, stranger: Browser) -> None:
    for text in ("", "x", "eyJrZXkiOiIifQ.a.b", "." * 500):
        answer = stranger.request("GET", "/", headers={"cookie": f"tidemill_session={text}"})
        assert answer.status_code == 303


def test_a_form_without_a_valid_csrf_token_is_rejected(shop: House) -> None:
    person = shop.person("operator", "acme")
    for data in ({"theme": "dark"}, {"theme": "dark", "csrf": "0" * 64}):
        answer = person.ask("POST", "/theme", data=data)
        assert answer.status_code == 403
        assert "too old" in answer.text


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)
def test_a_form_of_another_site_is_rejected(shop: House, headers: dict[str, str]) -> None:
    person = shop.person("operator", "acme")
    page = person.open("/")
    csrf = page.split('name="csrf" content="')[1].split('"')[0]
    answer = person.ask("POST", "/theme", data={"theme": "dark", "csrf": csrf}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text


def test_the_theme_is_stored_in_the_browser(shop: House) -> None:
    person = shop.person("viewer", "acme")
    assert 'data-theme="dark"' in person.send("/", "/theme", theme="dark")


def test_every_page_has_the_strict_policy_and_no_inline_script_or_style(shop: House) -> None:
    answer = shop.person().ask("GET", "/")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert " style=" not in answer.text
    assert "<style" not in answer.text


def test_an_unknown_path_is_a_page_or_a_problem_document(shop: House) -> None:
    person = shop.person()
    page = person.ask("GET", "/nothing/here")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    api = person.ask("GET", "/api/nothing")
    assert (api.status_code, api.headers["content-type"]) == (404, "application/problem+json")
    assert person.ask("GET", "/static/../site.py").status_code == 404
