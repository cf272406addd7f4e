"""Incoming webhooks with the signatures of their senders."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from tests.interfaces.rest.kit import Site, site

from tidemill.web.guard import HOOK_BURST

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes ...").decode()


def signature(key: bytes, text: bytes) -> str:
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def standard(shop: Site, body: bytes, *, id: str = "msg_1", late: float = 0) -> dict[str, str]:
    """The headers of Standard Webhooks."""
    sent = str(int(shop.app.clock.now().timestamp() - late))
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id}.{sent}.".encode() + body, hashlib.sha256).digest()
    signed = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": id, "webhook-timestamp": sent, "webhook-signature": f"v1,bm8= {signed}"}


def deliver(shop: Site, name: str, body: bytes, headers: dict[str, str]) -> Any:
    return shop.client.request("POST", f"/api/hooks/{name}", content=body, headers=headers)


def names(shop: Site) -> list[str]:
    return [event.name for event in shop.app.signals.events(tenant="*")[0]]


def test_a_standard_webhook_becomes_an_event_once(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_HOOK_MY_SHOP", f"standard:{SECRET}")
    body = b'{"type":"order.paid","data":{"id":42}}'
    first = deliver(shop, "my-shop", body, standard(shop, body))
    assert (first.status_code, first.json()) == (202, {"accepted": True, "event": "my-shop.order.paid"})
    again = deliver(shop, "my-shop", body, standard(shop, body))
    assert (again.status_code, again.json()["accepted"]) == (202, False)
    (event,) = shop.app.signals.events(tenant="*")[0]
    assert json.loads(event.payload or "") == {"type": "order.paid", "data": {"id": 42}}
    assert event.source == "hook:my-shop"


def test_a_github_webhook_becomes_an_event(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_HOOK_GITHUB", "github:old,new")
    body = b'{"action":"opened"}'
    headers = {
        "x-hub-signature-256": "sha256=" + signature(b"new", body),
        "x-github-delivery": "d-1",
        "x-github-event": "pull_request",
    }
    assert deliver(shop, "github", body, headers).status_code == 202
    assert names(shop) == ["github.pull_request"]


def test_a_stripe_webhook_becomes_an_event(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_HOOK_PAY", "stripe:whsec_x")
    body = b'{"id":"evt_1","type":"invoice.paid"}'
    sent = int(shop.app.clock.now().timestamp())
    signed = signature(b"whsec_x", f"{sent}.".encode() + body)
    assert deliver(shop, "pay", body, {"stripe-signature": f"t={sent},v1={signed},v0=x"}).status_code == 202
    assert (
        deliver(shop, "pay", body, {"stripe-signature": f"t={sent},v1={signed}"}).json()["accepted"] is False
    )
    assert names(shop) == ["pay.invoice.paid"]


@pytest.mark.parametrize("wrong", ["late", "ahead", "body", "missing"])
def test_a_delivery_that_is_not_signed_in_time_is_refused(
    shop: Site, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("TIDEMILL_HOOK_SHOP", f"standard:{SECRET}")
    body = b"{}"
    headers = standard(shop, body, late={"late": 301, "ahead": -302}.get(wrong, 0))
    if wrong == "missing":
        headers.pop("webhook-signature")
    answer = deliver(shop, "shop", b"[]" if wrong == "body" else body, headers)
    assert (answer.status_code, answer.json()["code"]) == (401, "bad_signature")
    assert names(shop) == []


def test_an_unknown_hook_and_a_large_body_are_refused(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert deliver(shop, "shop", b"{}", {}).status_code == 404
    monkeypatch.setenv("TIDEMILL_HOOK_SHOP", f"standard:{SECRET}")
    large = b'"' + b"x" * 262_144 + b'"'
    assert deliver(shop, "shop", large, standard(shop, large)).status_code == 413
    text = b"no json"
    assert deliver(shop, "shop", text, standard(shop, text)).status_code == 422


def test_deliveries_of_a_hook_are_limited(shop: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_HOOK_SHOP", f"standard:{SECRET}")
    answers = [deliver(shop, "shop", b"{}", standard(shop, b"{}", id=f"msg_{n}")) for n in range(300)]
    assert {answer.status_code for answer in answers} == {202, 429}
    assert int(answers[-1].headers["retry-after"]) > 0


def test_deliveries_without_a_signature_do_not_hold_up_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_HOOK_SHOP", f"standard:{SECRET}")
    monkeypatch.setattr("tidemill.web.guard.HOOK_RATE", 1e-6)
    with site() as shop:
        statuses = [deliver(shop, "shop", b"{}", {}).status_code for _ in range(HOOK_BURST + 1)]
        assert statuses == [401] * HOOK_BURST + [429]
        assert deliver(shop, "shop", b"{}", standard(shop, b"{}")).status_code == 202
