"""Sign-in, sign-out, sessions and CSRF protection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interfaces.dashboard.kit import House, house
from tests.interfaces.rest.kit import Browser

from tidemill import App
from tidemill.clock import ManualClock
from tidemill.dashboard import create_site


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
