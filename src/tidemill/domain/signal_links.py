"""Signed links that send one signal to one job, for people and systems without a key.

The functions are pure: the secret, the time and the random part are arguments.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.signals import check_message_name
from tidemill.domain.webhooks import BadSignature, key_of
from tidemill.errors import UsageError

PATH = "/api/callbacks/"
"""The path of the links under the address of the HTTP API."""
LONGEST_TTL = timedelta(days=366)
LONGEST_TOKEN = 2_000
_PURPOSE = b"tidemill signal link"


class SignalLink(NamedTuple):
    """The job and the signal of a link, and the time until which it works. ``nonce`` distinguishes links."""

    job_id: UUID
    tenant: str
    name: str
    expires_at: datetime
    nonce: str

    @property
    def key(self) -> str:
        """The key of the signal: a link sends it once."""
        return f"link/{self.nonce}"


def new_link(job_id: UUID, tenant: str, name: str, ttl: timedelta, now: datetime, nonce: str) -> SignalLink:
    """A link to a job. Raises ``BadSettings`` for the name and ``UsageError`` for the time."""
    check_message_name("signal", name)
    if not timedelta(0) < ttl <= LONGEST_TTL:
        raise UsageError(
            f"the ttl of a callback URL is {ttl}; give more than 0 and at most {LONGEST_TTL.days} days"
        )
    return SignalLink(job_id, tenant, name, (now + ttl).replace(microsecond=0), nonce)


def sign_link(secret: str, link: SignalLink) -> str:
    """The token of a link: its fields and their signature.

    >>> link = SignalLink(UUID(int=1), "default", "approved", datetime(2026, 1, 1, tzinfo=UTC), "n")
    >>> read_link("whsec_c2VjcmV0", sign_link("whsec_c2VjcmV0", link)) == link
    True
    """
    fields = [link.job_id.hex, link.tenant, link.name, int(link.expires_at.timestamp()), link.nonce]
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
    return f"{_encoded(text)}.{_encoded(_signature(secret, text))}"


def read_link(secret: str, token: str) -> SignalLink:
    """The link of a token. Raises ``BadSignature`` unless this secret has signed it. It may have expired."""
    text, _, signature = token.partition(".")
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise BadSignature("this is no callback URL")
    try:
        fields, given = _decoded(text), _decoded(signature)
    except (binascii.Error, ValueError):
        raise BadSignature("this is no callback URL") from None
    if not hmac.compare_digest(given, _signature(secret, fields)):
        raise BadSignature("the signature of this callback URL does not match")
    job, tenant, name, expires_at, nonce = json.loads(fields)
    return SignalLink(UUID(job), tenant, name, datetime.fromtimestamp(expires_at, UTC), nonce)


def _signature(secret: str, text: bytes) -> bytes:
    # A key of its own, because the secret also signs webhooks, whose content others may influence.
    key = hmac.new(key_of(secret), _PURPOSE, hashlib.sha256).digest()
    return hmac.new(key, text, hashlib.sha256).digest()


def _encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    # Only the canonical form, so that a token has one spelling.
    content = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _encoded(content) != text:
        raise ValueError(text)
    return content
