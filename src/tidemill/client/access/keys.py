"""``app.keys``: creating, listing, revoking and identifying API keys.

Secrets are shown once and never stored. Lookups are cached for five seconds, so a revoked key may be accepted for that
long.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.client._base import StoreApi
from tidemill.client.access.identity import note, who
from tidemill.client.core import Client
from tidemill.domain.access import (
    ID_BYTES,
    SECRET_BYTES,
    Identity,
    Key,
    Role,
    identify,
    identity_of,
    key_id,
    read_secret,
    secret_hash,
    secret_text,
)
from tidemill.domain.bounds import check_instant, check_span
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadSettings, KeyNotFound
from tidemill.tasks.options import check_name, check_priority

FRESH = 5.0
"""Seconds for which a lookup is cached."""

KNOWN = 1_000
"""Maximum number of cached keys, and of cached unknown ids."""

_ATTEMPTS = 20


class NewKey(NamedTuple):
    """A new key and its secret, which cannot be shown again."""

    key: Key
    secret: str


class Keys(StoreApi):
    """The keys of an app's store."""

    def __init__(self, client: Client, dice: Callable[[int], bytes] = secrets.token_bytes) -> None:
        super().__init__(client)
        self._dice = dice
        self._lock = threading.Lock()
        # Separate caches, so that an attacker who tries many ids cannot evict real keys.
        self._known: OrderedDict[str, tuple[Key, float]] = OrderedDict()
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._any: tuple[bool, float] | None = None

    def create(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        tenant: str | None = None,
        expires: datetime | timedelta | None = None,
        max_priority: int | None = None,
    ) -> NewKey:
        """Create a key for one tenant, or for all tenants; only this result contains the secret.

        Jobs that are enqueued with the key over HTTP or in the dashboard may not have a priority above
        ``max_priority``.
        """
        if max_priority is not None:
            check_priority(max_priority)
        check_name("key", name)
        if tenant not in (None, ALL_TENANTS):
            check_name("tenant", tenant)
        wanted = Key(
            "",
            name,
            _role(role),
            tenant or ALL_TENANTS,
            created_by=who(),
            expires_at=self._expiry(expires),
            max_priority=max_priority,
        )
        for _ in range(_ATTEMPTS):
            id = key_id(self._dice(ID_BYTES))
            text = secret_text(id, self._dice(SECRET_BYTES))
            parts = read_secret(text)
            assert parts is not None
            key = replace(wanted, id=id, hash=secret_hash(parts.secret))
            with self._store.transaction():
                if self._store.put_keys([key], now=self._pin):
                    continue  # the id is taken
                self._note("created", key, None, _facts(key))
            self._forget(id)
            self._tell(["change"])
            (stored,) = self._store.keys([id])
            return NewKey(stored, text)
        raise BadSettings(
            f"no free id for a key was found in {_ATTEMPTS} attempts; the random source is broken"
        )

    def list(self) -> Sequence[Key]:
        """Return all keys in order of creation, including revoked and expired ones."""
        return self._store.keys()

    def get(self, id: str) -> Key:
        """Return the key with that id, or raise ``KeyNotFound``."""
        found = self._store.keys([id])
        if not found:
            raise KeyNotFound(f"there is no key {id!r}; see tidemill keys list", id=id)
        return found[0]

    def revoke(self, id: str) -> Key:
        """Revoke a key: immediately in this process, within five seconds in others. Return the stored key."""
        found = self.get(id)
        with self._store.transaction():
            if self._store.revoke_keys([id], now=self._pin):
                self._note("revoked", found, {"revoked": False}, {"revoked": True})
        self._forget(id)
        self._tell(["change"])
        return self.get(id)

    def identify(self, text: str) -> Identity | None:
        """Return the identity that this secret belongs to; None if it is not valid, for any reason."""
        parts = read_secret(text)
        key = None if parts is None else self._remembered(parts.id)
        return identify(key, text, self._client.clock.now())

    def identity(self, id: str) -> Identity | None:
        """Return the identity of a key that was presented before, by its id; None if the key is not valid now."""
        key = self._remembered(id)
        return None if key is None or not key.lives(self._client.clock.now()) else identity_of(key)

    def any(self) -> bool:
        """Whether there is a valid key."""
        at = self._client.clock.monotonic()
        with self._lock:
            known = self._any
        if known is not None and at - known[1] < FRESH:
            return known[0]
        now = self._client.clock.now()
        keys = self._store.keys()
        found = any(key.lives(now) for key in keys)
        with self._lock:
            self._any = (found, at)
        return found

    # Cache -------------------------------------------------------------------------------------------------------------

    def _remembered(self, id: str) -> Key | None:
        """Return the key with this id, at most ``FRESH`` seconds old."""
        is_cached, key = self._cached(id)
        if is_cached:
            return key
        at = self._client.clock.monotonic()
        found = self._store.keys([id])
        with self._lock:  # timestamped before the read, because the result may be that old
            self._known.pop(id, None)
            self._unknown.pop(id, None)
            if found:
                self._known[id] = (found[0], at)
            else:
                self._unknown[id] = at
            for memory in (self._known, self._unknown):
                while len(memory) > KNOWN:
                    memory.popitem(last=False)
        return found[0] if found else None

    def _cached(self, id: str) -> tuple[bool, Key | None]:
        """Return whether the cache has an answer for this id, and the key; None if there is no such key."""
        at = self._client.clock.monotonic()
        with self._lock:
            known, missing = self._known.get(id), self._unknown.get(id)
        if known is not None and at - known[1] < FRESH:
            return True, known[0]
        return missing is not None and at - missing < FRESH, None

    def _forget(self, id: str) -> None:
        with self._lock:
            self._known.pop(id, None)
            self._unknown.pop(id, None)
            self._any = None

    # Helpers -----------------------------------------------------------------------------------------------------------

    def _expiry(self, expires: object) -> datetime | None:
        if expires is None:
            return None
        now = self._client.clock.now()
        if isinstance(expires, timedelta):
            check_span("expires", expires)
            at = now + expires
        elif not isinstance(expires, datetime) or expires.tzinfo is None:
            raise BadSettings(
                f"expires is {expires!r}; give an aware datetime or a timedelta", option="expires"
            )
        else:
            check_instant("expires", expires)
            at = expires
        if at <= now:
            raise BadSettings(f"expires is {at.isoformat()}, which has passed", option="expires")
        return at

    def _note(
        self, verb: str, key: Key, before: dict[str, object] | None, after: dict[str, object] | None
    ) -> None:
        subject, pin = f"key:{key.id}", self._pin
        note(self._store, f"key.{verb}", subject, key.tenant, before=before, after=after, now=pin)

    # Async twins -------------------------------------------------------------------------------------------------------

    async def acreate(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        tenant: str | None = None,
        expires: datetime | timedelta | None = None,
        max_priority: int | None = None,
    ) -> NewKey:
        return await self._await(
            self.create, name, role=role, tenant=tenant, expires=expires, max_priority=max_priority
        )

    async def alist(self) -> Sequence[Key]:
        return await self._await(self.list)

    async def aget(self, id: str) -> Key:
        return await self._await(self.get, id)

    async def arevoke(self, id: str) -> Key:
        return await self._await(self.revoke, id)

    async def aidentify(self, text: str) -> Identity | None:
        parts = read_secret(text)
        is_cached, key = (True, None) if parts is None else self._cached(parts.id)
        if is_cached:  # no store call needed
            return identify(key, text, self._client.clock.now())
        return await self._await(self.identify, text)

    async def aidentity(self, id: str) -> Identity | None:
        return self.identity(id) if self._cached(id)[0] else await self._await(self.identity, id)

    async def aany(self) -> bool:
        return await self._await(self.any)


def _role(given: Role | str) -> Role:
    try:
        return Role(given)
    except ValueError:
        raise BadSettings(f"there is no role {given!r}; there are {', '.join(Role)}", option="role") from None


def _facts(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "role": key.role.value,
        "tenant": key.tenant,
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
    } | ({} if key.max_priority is None else {"max_priority": key.max_priority})
