"""Callback URLs over HTTP: the page, the signal, expiry, tampering and ended jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.interfaces.rest.kit import Site, problem, site

from tidemill import Context
from tidemill.domain.signal_links import new_link, sign_link

SECRET = "whsec_c2VjcmV0"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("TIDEMILL_CALLBACK_SECRET", SECRET)
    with site() as made:

        @made.app.task(name="gate")
        def gate(ctx: Context) -> Any:
            return ctx.wait_for("approved <b>")

        yield made


def begin(shop: Site) -> Any:
    with shop.app.tenant("acme"):
        return shop.app.bound_task("gate").enqueue()


def path(shop: Site, job: Any, ttl: timedelta = timedelta(hours=1), secret: str = SECRET) -> str:
    link = new_link(job.id, "acme", "approved <b>", ttl, shop.app.clock.now(), "nonce")
    return f"/api/callbacks/{sign_link(secret, link)}"


def post(shop: Site, path: str, **rest: Any) -> Any:
    return shop.client.request("POST", path, **rest)


def unread(shop: Site, job: Any) -> list[Any]:
    return [
        None if signal.payload is None else json.loads(signal.payload)
        for signal in shop.app.signals.list(job, tenant="acme")
    ]


def test_a_program_sends_the_signal_once_with_a_payload(shop: Site) -> None:
    job = begin(shop)
    first = post(shop, path(shop, job), json={"by": "ada"})
    assert (first.status_code, first.json()) == (201, {"accepted": True})
    again = post(shop, path(shop, job), json={"by": "bob"})
    assert (again.status_code, again.json()) == (200, {"accepted": False})
    (signal,) = shop.app.signals.list(job, tenant="acme")
    assert signal.source == "callback URL"
    shop.drain()
    assert job.refresh().result(timeout=1) == {"by": "ada"}


def test_opening_the_url_shows_a_button_and_sends_nothing(shop: Site) -> None:
    job = begin(shop)
    for method in ("GET", "HEAD"):
        page = shop.client.request(method, path(shop, job), headers={"accept": "text/html"})
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "form-action 'self'" in page.headers["content-security-policy"]
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
    page = shop.client.request("GET", path(shop, job))
    assert '<form method="post">' in page.text
    assert "approved &lt;b&gt;" in page.text
    assert "<b>" not in page.text
    assert unread(shop, job) == []


def test_the_button_sends_the_signal_without_a_payload(shop: Site) -> None:
    job = begin(shop)
    form = {"accept": "text/html", "content-type": "application/x-www-form-urlencoded"}
    page = post(shop, path(shop, job), headers=form, content=b"")
    assert (page.status_code, "<h1>Sent</h1>" in page.text) == (200, True)
    assert "This was sent before" in post(shop, path(shop, job), headers=form).text
    assert unread(shop, job) == [None]


@pytest.mark.parametrize("change", ["name", "signature", "secret", "nonsense", "padding"])
def test_a_changed_url_is_refused(shop: Site, change: str) -> None:
    job = begin(shop)
    good = path(shop, job)
    token = good.rpartition("/")[2]
    text, _, signature = token.partition(".")
    bad = {
        "name": f"{text[:-4]}{'AAAA' if text[-4:] != 'AAAA' else 'BBBB'}.{signature}",
        "signature": f"{text}.{signature[:-2]}{'A' if signature[-2] != 'A' else 'B'}{signature[-1]}",
        "secret": path(shop, job, secret="whsec_b3RoZXI=").rpartition("/")[2],
        "nonsense": "x" * 3_000,
        "padding": f"{token}=",
    }[change]
    problem(post(shop, f"/api/callbacks/{bad}", json=1), 404, "not_found")
    page = shop.client.request("GET", f"/api/callbacks/{bad}", headers={"accept": "text/html"})
    assert (page.status_code, "This link does not work" in page.text) == (404, True)
    assert unread(shop, job) == []


def test_an_expired_url_is_gone(shop: Site) -> None:
    job = begin(shop)
    late = path(shop, job, timedelta(milliseconds=1))
    problem(post(shop, late, json=1), 410, "expired")
    assert shop.client.request("GET", late).status_code == 410
    page = post(shop, late, headers={"accept": "text/html"})
    assert (page.status_code, "Nothing was sent" in page.text) == (410, True)
    assert unread(shop, job) == []


def test_a_url_of_an_ended_job_sends_nothing(shop: Site) -> None:
    job = begin(shop)
    url = path(shop, job)
    job.cancel()
    problem(post(shop, url, json=1), 409, "ended")
    page = post(shop, url, headers={"accept": "text/html"})
    assert "the job has ended" in page.text


def test_a_body_that_is_no_json_is_refused(shop: Site) -> None:
    job = begin(shop)
    problem(post(shop, path(shop, job), content=b"{"), 422, "invalid_request")
    assert unread(shop, job) == []


def test_a_server_without_the_secret_names_the_variable(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    job = begin(shop)
    url = path(shop, job)
    monkeypatch.delenv("TIDEMILL_CALLBACK_SECRET")
    answer = post(shop, url, json=1)
    assert answer.status_code == 404
    assert "TIDEMILL_CALLBACK_SECRET is not set" in answer.json()["detail"]
