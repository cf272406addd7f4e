"""Who may do what: roles, keys and the identity a key gives. Pure; the dice and the time are arguments.

A key's secret is never stored, only its SHA-256. A slow hash would add nothing: it protects what people choose and others can
guess, and 32 random bytes cannot be guessed however fast one tries; but every request would pay for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from tidemill.domain.filters import ALL_TENANTS

ID_BYTES = 4
SECRET_BYTES = 32

_TEXT = re.compile(r"tm_([0-9a-f]{8})\.([A-Za-z0-9_-]{43})")
_NOBODY = (
    "0" * 64
)  # what is compared where there is no key, so that an unknown one takes as long as a wrong one


class Role(StrEnum):
    """What a key may do; each role may do all that the ones before it may.

    >>> Role.ADMIN.allows(Role.OPERATOR), Role.VIEWER.allows(Role.OPERATOR)
    (True, False)
    """

    VIEWER = "viewer"  #: read, with secrets masked
    OPERATOR = "operator"  #: enqueue, cancel, retry, approve, pause
    ADMIN = "admin"  #: tasks, definitions, schedules, archive
    SUPER_ADMIN = "super_admin"  #: worker configuration, keys

    def allows(self, other: Role) -> bool:
        """Whether this role may do what needs the other."""
        return _ORDER.index(self) >= _ORDER.index(other)


_ORDER = tuple(Role)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored: all but its secret. ``tenant`` is one, or ``ALL_TENANTS``."""

    id: str
    name: str
    role: Role
    tenant: str = ALL_TENANTS
    hash: str = field(default=_NOBODY, repr=False)
    created_at: datetime | None = None
    created_by: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def lives(self, now: datetime) -> bool:
        """Whether it opens anything: it is not revoked, and its last moment has not come."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Identity(NamedTuple):
    """Who speaks: for the audit, what they may do, and whose things they may see."""

    who: str
    role: Role
    tenant: str

    def sees(self, tenant: str) -> bool:
        """Whether things of this tenant are theirs to see."""
        return self.tenant in (ALL_TENANTS, tenant)


class Secret(NamedTuple):
    """A key's text, taken apart."""

    id: str
    secret: str


def key_id(dice: bytes) -> str:
    """A key's id from ``ID_BYTES`` random bytes."""
    return dice.hex()


def secret_text(id: str, dice: bytes) -> str:
    """What the owner of a key keeps: its id, and ``SECRET_BYTES`` random bytes in letters that need no quoting anywhere.

    >>> secret_text("ab12cd34", bytes(32))
    'tm_ab12cd34.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    return f"tm_{id}.{base64.urlsafe_b64encode(dice).decode().rstrip('=')}"


def read_secret(text: str) -> Secret | None:
    """The parts of a key's text; None where it is none."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Secret(found[1], found[2])


def secret_hash(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def identify(key: Key | None, text: str, now: datetime) -> Identity | None:
    """Who this text makes its bearer, given the stored key of its id; None where it opens nothing.

    Whether there is no such key, or another secret, or it has ended, is not to be told from the time this takes.
    """
    parts = read_secret(text)
    given = secret_hash(text if parts is None else parts.secret)
    fits = hmac.compare_digest(given, _NOBODY if key is None else key.hash)
    if not fits or key is None or parts is None or parts.id != key.id or not key.lives(now):
        return None
    return identity_of(key)


def identity_of(key: Key) -> Identity:
    """Who the bearer of a key is."""
    return Identity(f"key:{key.id} ({key.name})", key.role, key.tenant)
