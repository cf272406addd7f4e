"""Sign-in sessions as the store keeps them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime

SHORT_SESSION = 12
"""Digits of a session's id that lists show and commands accept."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """One sign-in. ``id`` is the hash of the cookie, so read access to the table opens no session.

    A session of an API key has the key's permissions, which are read at each request. A session of single sign-on has
    those of its claims at sign-in, in ``grant_json``.
    """

    id: str
    who: str
    expires_at: datetime
    key_id: str | None = None
    grant_json: str | None = field(default=None, repr=False)
    issuer: str | None = None
    subject: str | None = None  #: the user's id at the issuer
    provider_session: str | None = None  #: the session's id at the issuer, for its logout message
    single_use: str | None = field(default=None, repr=False)  #: digest of a code that opens only one session
    created_at: datetime | None = None
    ended_at: datetime | None = None

    def lives(self, now: datetime) -> bool:
        """Whether the session is valid: neither ended nor expired."""
        return self.ended_at is None and now < self.expires_at


def session_id(cookie: str) -> str:
    """The id under which the session of this cookie is stored."""
    return hashlib.sha256(b"session " + cookie.encode("utf-8", "surrogatepass")).hexdigest()


def single_use_digest(code: str) -> str:
    """The digest that the store keeps of a code that opens only one session."""
    return hashlib.sha256(b"single use " + code.encode("utf-8", "surrogatepass")).hexdigest()
