"""The keys of hands, as a hub knows them."""

from __future__ import annotations

import threading
from typing import NamedTuple

from tidemill.clock import Clock
from tidemill.domain.access import Identity, Key, identify, read_secret
from tidemill.domain.permissions import ANY, ActTarget, decide
from tidemill.stores.base import Store
from tidemill.stores.hub.protocol import HubRefusal

ACT = "jobs.work"
"""The act that a hand's key must allow."""

FRESH = 5.0
"""Seconds for which a key is not read again; a revoked key is refused after this time."""

_MOST = 10_000  # keys that are remembered, also those that do not exist


class Caller(NamedTuple):
    """The owner of the key of a request."""

    identity: Identity
    key_hash: str

    @property
    def tenant(self) -> str:
        return self.identity.tenant

    def may_run(self, task: str) -> bool:
        """Whether the key allows this task."""
        return self.may(ACT, task)

    def may(self, act: str, task: str, queue: str | None = None) -> bool:
        """Whether the grants of the key include an act on jobs of this task and queue."""
        identity = self.identity
        return not identity.grants or decide(identity, act, ActTarget(task, queue)).allowed


class HubKeys:
    """Checks keys. Any thread may call it."""

    def __init__(self, store: Store, clock: Clock, environment: str | None = None) -> None:
        self._store, self._clock, self._environment = store, clock, environment
        self._lock = threading.Lock()
        self._keys_by_id: dict[str, tuple[Key | None, float]] = {}
        self._callers: dict[str, tuple[Caller, float]] = {}

    def remembered(self, text: str) -> Caller | None:
        """The owner of this key, if it was checked a moment ago."""
        with self._lock:
            entry = self._callers.get(text)
        if entry is None or self._clock.monotonic() - entry[1] >= FRESH:
            return None
        return entry[0]

    def caller(self, text: str) -> Caller:
        """The owner of this key. Raises ``HubRefusal`` if it is not valid, or does not allow to run jobs."""
        entry = self.remembered(text)
        if entry is not None:
            return entry
        at = self._clock.monotonic()
        parts = read_secret(text)
        key = None if parts is None else self._key(parts.id, at)
        identity = identify(key, text, self._clock.now())
        if identity is None or key is None:
            raise HubRefusal("the key is unknown, expired or revoked")
        caller = Caller(_checked(identity, self._environment), key.hash)
        with self._lock:
            if len(self._callers) >= _MOST:
                self._callers.clear()
            self._callers[text] = (caller, at)
        return caller

    def _key(self, id: str, at: float) -> Key | None:
        with self._lock:
            entry = self._keys_by_id.get(id)
        if entry is not None and at - entry[1] < FRESH:
            return entry[0]
        key = next(iter(self._store.keys([id])), None)
        with self._lock:
            if len(self._keys_by_id) >= _MOST:
                self._keys_by_id.clear()
            self._keys_by_id[id] = (key, at)
        return key


def _checked(identity: Identity, environment: str | None) -> Identity:
    verdict = decide(identity, ACT, None, environment)
    if not verdict.allowed:
        raise HubRefusal(f"the key may not run jobs: {verdict.reason}")
    for grant in identity.grants:
        if grant.names(ACT) and (grant.queues != ANY or grant.definitions != ANY):
            raise HubRefusal(
                f"a grant of {ACT} can be restricted to tasks, not to queues or definitions: {grant}"
            )
    return identity
