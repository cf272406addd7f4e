"""Signing in and out, sessions, and forms that another site may have sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interfaces.dashboard.kit import House, house
from tests.interfaces.rest.kit import Browser


@pytest.fixture
def stranger(shop: House) -> Iterator[Browser]:
    browser = Browser(shop.site_app)
    browser.witness = None  # who this is changes as it signs in
    yield browser
    browser.close()


def test_a_page_sends_strangers_to_the_sign_in_and_back(shop: House, stranger: Browser) -> None:
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
def test_a_wrong_key_opens_nothing_and_is_not_repeated(stranger: Browser, wrong: str) -> None:
    answer = stranger.request("POST", "/sign-in", data={"key": wrong})
    assert answer.status_code == 401
    assert "That opens nothing" in answer.text
    assert not wrong or wrong not in answer.text


@pytest.mark.parametrize("address", ["https://evil.example/", "//evil.example", "/\\evil.example", "/\tx"])
def test_the_sign_in_leads_to_this_site_only(shop: House, stranger: Browser, address: str) -> None:
    answer = stranger.request("POST", "/sign-in", data={"key": shop.key("viewer", "acme"), "next": address})
    assert answer.headers["location"] == "/"


def test_who_shows_too_many_wrong_keys_waits() -> None:
    with house(login_burst=3, login_rate=0.001) as shop:
        browser = Browser(shop.site_app)
        try:
            codes = [browser.request("POST", "/sign-in", data={"key": "x"}).status_code for _ in range(5)]
        finally:
            browser.close()
    assert codes == [401, 401, 401, 429, 429]


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


def test_a_cookie_of_one_s_own_making_opens_nothing(shop: House, stranger: Browser) -> None:
    for text in ("", "x", "eyJrZXkiOiIifQ.a.b", "." * 500):
        answer = stranger.request("GET", "/", headers={"cookie": f"tidemill_session={text}"})
        assert answer.status_code == 303


def test_a_form_without_the_right_word_is_refused(shop: House) -> None:
    person = shop.person("operator", "acme")
    for data in ({"theme": "dark"}, {"theme": "dark", "csrf": "0" * 64}):
        answer = person.ask("POST", "/theme", data=data)
        assert answer.status_code == 403
        assert "too old" in answer.text


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}],
)
def test_a_form_of_another_site_is_refused(shop: House, headers: dict[str, str]) -> None:
    person = shop.person("operator", "acme")
    page = person.open("/")
    csrf = page.split('name="csrf" content="')[1].split('"')[0]
    answer = person.ask("POST", "/theme", data={"theme": "dark", "csrf": csrf}, headers=headers)
    assert answer.status_code == 403
    assert "another site" in answer.text


def test_the_theme_is_kept_in_the_browser(shop: House) -> None:
    person = shop.person("viewer", "acme")
    assert 'data-theme="dark"' in person.send("/", "/theme", theme="dark")


def test_every_page_has_the_strict_policy_and_no_inline_script_or_style(shop: House) -> None:
    answer = shop.person().ask("GET", "/")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert " style=" not in answer.text
    assert "<style" not in answer.text


def test_an_address_that_is_nothing_is_told_as_its_caller_reads(shop: House) -> None:
    person = shop.person()
    page = person.ask("GET", "/nothing/here")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    api = person.ask("GET", "/api/nothing")
    assert (api.status_code, api.headers["content-type"]) == (404, "application/problem+json")
    assert person.ask("GET", "/static/../site.py").status_code == 404
