"""``app.keys``: making, listing and revoking keys, and telling who holds one. Secrets are shown once and never stored.

Whoever asks often is answered from memory, which is never older than five seconds: so long a revoked key may still open.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.client.acting import note, who
from tidemill.client.core import Client
from tidemill.client.tellers import Teller
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
from tidemill.tasks.options import check_name

FRESH = 5.0
"""Seconds for which an answer about a key is believed."""

KNOWN = 1_000
"""Keys that are remembered; and as many ids that are no key's."""

_ATTEMPTS = 20


class NewKey(NamedTuple):
    """A key that was just made, and its secret, which nobody can be told again."""

    key: Key
    secret: str


class Keys(Teller):
    """The keys of an app's store."""

    def __init__(self, client: Client, dice: Callable[[int], bytes] = secrets.token_bytes) -> None:
        super().__init__(client)
        self._dice = dice
        self._lock = threading.Lock()
        # Apart, so that whoever tries many ids drives no real key out of memory.
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
    ) -> NewKey:
        """Make a key for one tenant, or for all of them; its secret is in the answer, and nowhere else."""
        check_name("key", name)
        if tenant not in (None, ALL_TENANTS):
            check_name("tenant", tenant)
        wanted = Key(
            "", name, _role(role), tenant or ALL_TENANTS, created_by=who(), expires_at=self._expiry(expires)
        )
        for _ in range(_ATTEMPTS):
            id = key_id(self._dice(ID_BYTES))
            text = secret_text(id, self._dice(SECRET_BYTES))
            parts = read_secret(text)
            assert parts is not None
            key = replace(wanted, id=id, hash=secret_hash(parts.secret))
            with self._store.transaction():
                if self._store.put_keys([key], now=self._pin):
                    continue  # somebody has this id
                self._note("created", key, None, _facts(key))
            self._forget(id)
            self._tell(["change"])
            (stored,) = self._store.keys([id])
            return NewKey(stored, text)
        raise BadSettings(f"no free id for a key was found in {_ATTEMPTS} attempts; the dice are loaded")

    def list(self) -> Sequence[Key]:
        """All keys by creation; those that are revoked or expired, too."""
        return self._store.keys()

    def get(self, id: str) -> Key:
        """The key of that id, or ``KeyNotFound``."""
        found = self._store.keys([id])
        if not found:
            raise KeyNotFound(f"there is no key {id!r}; see tidemill keys list", id=id)
        return found[0]

    def revoke(self, id: str) -> Key:
        """Let a key open nothing more, here at once and elsewhere within five seconds; the key as it is stored then."""
        found = self.get(id)
        with self._store.transaction():
            if self._store.revoke_keys([id], now=self._pin):
                self._note("revoked", found, {"revoked": False}, {"revoked": True})
        self._forget(id)
        self._tell(["change"])
        return self.get(id)

    def identify(self, text: str) -> Identity | None:
        """Who the bearer of this text is; None where it opens nothing, for whatever reason."""
        parts = read_secret(text)
        key = None if parts is None else self._remembered(parts.id)
        return identify(key, text, self._client.clock.now())

    def identity(self, id: str) -> Identity | None:
        """Who the bearer of the key of this id is, for one who has shown the key before; None if it opens nothing now."""
        key = self._remembered(id)
        return None if key is None or not key.lives(self._client.clock.now()) else identity_of(key)

    def any(self) -> bool:
        """Whether there is a key that opens anything."""
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

    # Memory ------------------------------------------------------------------------------------------------------------

    def _remembered(self, id: str) -> Key | None:
        """The key of this id, as it was at most ``FRESH`` seconds ago."""
        at = self._client.clock.monotonic()
        with self._lock:
            known, missing = self._known.get(id), self._unknown.get(id)
        if known is not None and at - known[1] < FRESH:
            return known[0]
        if missing is not None and at - missing < FRESH:
            return None
        found = self._store.keys([id])
        with self._lock:  # dated before the store was asked: what it says may be as old as that
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

    def _fresh(self, id: str) -> bool:
        """Whether memory has the answer about this id."""
        at = self._client.clock.monotonic()
        with self._lock:
            known, missing = self._known.get(id), self._unknown.get(id)
        return (
            at - (known[1] if known is not None else missing if missing is not None else at - FRESH) < FRESH
        )

    def _forget(self, id: str) -> None:
        with self._lock:
            self._known.pop(id, None)
            self._unknown.pop(id, None)
            self._any = None

    # Parts -------------------------------------------------------------------------------------------------------------

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

    # Twins -------------------------------------------------------------------------------------------------------------

    async def acreate(
        self,
        name: str,
        *,
        role: Role | str = Role.VIEWER,
        tenant: str | None = None,
        expires: datetime | timedelta | None = None,
    ) -> NewKey:
        return await self._await(self.create, name, role=role, tenant=tenant, expires=expires)

    async def alist(self) -> Sequence[Key]:
        return await self._await(self.list)

    async def aget(self, id: str) -> Key:
        return await self._await(self.get, id)

    async def arevoke(self, id: str) -> Key:
        return await self._await(self.revoke, id)

    async def aidentify(self, text: str) -> Identity | None:
        parts = read_secret(text)
        if parts is None or self._fresh(parts.id):  # nobody need be asked
            return self.identify(text)
        return await self._await(self.identify, text)

    async def aidentity(self, id: str) -> Identity | None:
        return self.identity(id) if self._fresh(id) else await self._await(self.identity, id)

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
    }
