"""Access control: roles, API keys and the identity that a key grants.

The store keeps only the SHA-256 of a key's secret. A slow password hash would cost time on every request and add no
security: the secret is 32 random bytes, which cannot be guessed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.permissions import NO_ACCESS, Access, Grant
from tidemill.domain.roles import Role
from tidemill.errors import PriorityTooHigh

# Role has a module of its own, because permissions need it as well.
__all__ = [
    "ID_BYTES", "SECRET_BYTES", "Identity", "Key", "KeyText", "Role", "identify", "identity_of", "key_id", "read_secret",
    "secret_hash", "secret_text", "with_access",
]  # fmt: skip

ID_BYTES = 4
SECRET_BYTES = 32

_TEXT = re.compile(r"tm_([0-9a-f]{8})\.([A-Za-z0-9_-]{43})")
# Compared when the key does not exist, so that an unknown key takes as long to reject as a wrong secret.
_NOBODY = "0" * 64


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key, without its secret. ``tenant`` names one tenant or is ``ALL_TENANTS``."""

    id: str
    name: str
    role: Role
    tenant: str = ALL_TENANTS
    hash: str = field(default=_NOBODY, repr=False)
    created_at: datetime | None = None
    created_by: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    max_priority: int | None = None  #: the highest priority its bearer may give a job; None means any
    access: Access = NO_ACCESS  #: grants, roles by tenant, and the environment

    def lives(self, now: datetime) -> bool:
        """Whether the key is valid: neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Identity(NamedTuple):
    """An authenticated caller: name for the audit log, role, and visible tenant.

    ``grants`` restrict the role; without any, the role decides alone. ``roles`` are the roles in other tenants; ``within`` selects
    one of them.
    """

    who: str
    role: Role
    tenant: str
    max_priority: int | None = None
    grants: tuple[Grant, ...] = ()
    roles: tuple[tuple[str, Role], ...] = ()
    environment: str | None = None  #: the only environment in which it is accepted; None means any

    def check_priority(self, priority: int) -> None:
        """Refuse a priority above the ceiling of the key."""
        if self.max_priority is not None and priority > self.max_priority:
            raise PriorityTooHigh(
                f"priority {priority} is above {self.max_priority}, the highest this key may use; use {self.max_priority} or less",
                priority=priority,
                max=self.max_priority,
            )

    def sees(self, tenant: str) -> bool:
        """Whether the caller may see objects of this tenant."""
        return self.tenant in (ALL_TENANTS, tenant)

    def within(self, tenant: str) -> Identity:
        """The identity in another tenant in which it has a role; the identity itself if it has none there.

        >>> ann = Identity("ann", Role.ADMIN, "acme", roles=(("acme", Role.ADMIN), ("bolt", Role.VIEWER)))
        >>> ann.within("bolt").role.value, ann.within("other").tenant
        ('viewer', 'acme')
        """
        for name, role in self.roles:
            if name == tenant:
                return self._replace(tenant=tenant, role=role)
        return self


class KeyText(NamedTuple):
    """The parts of a key's text."""

    id: str
    secret: str


def key_id(dice: bytes) -> str:
    """A key's id from ``ID_BYTES`` random bytes."""
    return dice.hex()


def secret_text(id: str, dice: bytes) -> str:
    """The text that the owner of a key keeps: its id and ``SECRET_BYTES`` random bytes as URL-safe base64.

    >>> secret_text("ab12cd34", bytes(32))
    'tm_ab12cd34.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA'
    """
    return f"tm_{id}.{base64.urlsafe_b64encode(dice).decode().rstrip('=')}"


def read_secret(text: str) -> KeyText | None:
    """The parts of a key's text, or None if it is malformed."""
    found = _TEXT.fullmatch(text)
    return None if found is None else KeyText(found[1], found[2])


def secret_hash(secret: str) -> str:
    """The hash that is stored instead of the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def identify(key: Key | None, text: str, now: datetime) -> Identity | None:
    """The identity that a key's text grants, given the stored key with its id; None if the text is not valid.

    The comparison takes the same time for an unknown, wrong, revoked or expired key.
    """
    parts = read_secret(text)
    given = secret_hash(text if parts is None else parts.secret)
    fits = hmac.compare_digest(given, _NOBODY if key is None else key.hash)
    if not fits or key is None or parts is None or parts.id != key.id or not key.lives(now):
        return None
    return identity_of(key)


def identity_of(key: Key) -> Identity:
    """The identity of a key's bearer."""
    identity = Identity(f"key:{key.id} ({key.name})", key.role, key.tenant, key.max_priority)
    return identity if key.access == NO_ACCESS else with_access(identity, key.access)


def with_access(identity: Identity, access: Access) -> Identity:
    """The identity with these grants, roles by tenant, and environment. The first tenant is the one it begins in."""
    if access == NO_ACCESS:
        return identity
    tenant, role = access.roles[0] if access.roles else (identity.tenant, identity.role)
    return identity._replace(
        tenant=tenant, role=role, grants=access.grants, roles=access.roles, environment=access.environment
    )
