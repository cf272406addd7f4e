"""Verification of incoming webhooks (Standard Webhooks, GitHub, Stripe), and the signature of outgoing ones.

The functions are pure: headers, body, secret and time are arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tidemill.errors import BadSettings

MOST_SKEW = timedelta(minutes=5)
"""How far the time of a delivery may differ from the receiver's."""
MOST_BODY = 256 * 1024
"""Bytes of a delivery."""


class HookKind(StrEnum):
    """How a sender signs its deliveries."""

    STANDARD = "standard"
    GITHUB = "github"
    STRIPE = "stripe"


class HookRule(NamedTuple):
    """The kind of a hook, and the secrets of which any may have signed a delivery."""

    kind: HookKind
    secrets: tuple[str, ...]


class BadSignature(Exception):
    """A delivery that is not signed with a secret of its hook, or too old; the text says which."""


class Delivery(NamedTuple):
    """The sender's id of a delivery and of its type, as far as the headers contain them."""

    id: str | None
    type: str | None = None


def read_hook(text: str) -> HookRule:
    """Read the rule of a hook: its kind, a colon, and one secret or several with commas.

    >>> read_hook("stripe:whsec_a,whsec_b")
    HookRule(kind=<HookKind.STRIPE: 'stripe'>, secrets=('whsec_a', 'whsec_b'))
    """
    kind, _, rest = text.partition(":")
    secrets = tuple(secret.strip() for secret in rest.split(",") if secret.strip())
    if kind not in [known.value for known in HookKind] or not secrets:
        kinds = ", ".join(HookKind)
        raise BadSettings(f"a hook is KIND:SECRET, with a kind of {kinds}")
    return HookRule(HookKind(kind), secrets)


def verify_delivery(rule: HookRule, headers: Mapping[str, str], body: bytes, now: datetime) -> Delivery:
    """Check the signature of a delivery; header names are in lower case. Raises ``BadSignature``."""
    match rule.kind:
        case HookKind.STANDARD:
            return _standard(rule.secrets, headers, body, now)
        case HookKind.GITHUB:
            return _github(rule.secrets, headers, body)
        case _:
            return _stripe(rule.secrets, headers, body, now)


def signed_headers(secret: str, id: str, at: datetime, body: bytes) -> dict[str, str]:
    """The headers of an outgoing webhook with a JSON body, signed as Standard Webhooks require.

    >>> from datetime import UTC
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> headers = signed_headers("whsec_c2VjcmV0", "msg_1", at, b"{}")
    >>> verify_delivery(HookRule(HookKind.STANDARD, ("whsec_c2VjcmV0",)), headers, b"{}", at)
    Delivery(id='msg_1', type=None)
    """
    sent = str(int(at.timestamp()))
    signature = base64.b64encode(_digest(key_of(secret), f"{id}.{sent}.".encode() + body)).decode()
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": sent,
        "webhook-signature": f"v1,{signature}",
    }


def _standard(secrets: tuple[str, ...], headers: Mapping[str, str], body: bytes, now: datetime) -> Delivery:
    id, sent = _header(headers, "webhook-id"), _header(headers, "webhook-timestamp")
    given = [
        word.partition(",")[2]
        for word in _header(headers, "webhook-signature").split()
        if word.startswith("v1,")
    ]
    _check_time(sent, now)
    signed = f"{id}.{sent}.".encode() + body
    expected = [base64.b64encode(_digest(key_of(secret), signed)).decode() for secret in secrets]
    _check_any(given, expected)
    return Delivery(id)


def _github(secrets: tuple[str, ...], headers: Mapping[str, str], body: bytes) -> Delivery:
    given = _header(headers, "x-hub-signature-256").removeprefix("sha256=")
    _check_any([given], [_digest(secret.encode(), body).hex() for secret in secrets])
    return Delivery(headers.get("x-github-delivery"), headers.get("x-github-event"))


def _stripe(secrets: tuple[str, ...], headers: Mapping[str, str], body: bytes, now: datetime) -> Delivery:
    pairs = [part.strip().partition("=") for part in _header(headers, "stripe-signature").split(",")]
    sent = next((value for name, _, value in pairs if name == "t"), "")
    _check_time(sent, now)
    signed = f"{sent}.".encode() + body
    given = [value for name, _, value in pairs if name == "v1"]
    _check_any(given, [_digest(secret.encode(), signed).hex() for secret in secrets])
    return Delivery(None)


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if not value:
        raise BadSignature(f"the header {name} is missing")
    return value


def _check_time(sent: str, now: datetime) -> None:
    if not sent.isascii() or not sent.isdigit() or len(sent) > 12:
        raise BadSignature("the time of the delivery is not a number of seconds")
    if abs(now.timestamp() - int(sent)) > MOST_SKEW.total_seconds():
        raise BadSignature(
            f"the delivery is more than {MOST_SKEW.total_seconds() / 60:g} minutes old or ahead"
        )


def _check_any(given: list[str], expected: list[str]) -> None:
    # Every pair is compared, in constant time each.
    same = [hmac.compare_digest(one.encode(), other.encode()) for one in given for other in expected]
    if not any(same):
        raise BadSignature("the signature does not match")


def _digest(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def key_of(secret: str) -> bytes:
    """The key of a Standard Webhooks secret, which is base64 after its prefix."""
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise BadSettings("the secret of a standard hook is base64 after whsec_") from None
