"""API keys in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tidemill.domain.access import Key
from tidemill.stores.access import KeyStore
from tidemill.stores.memory.core import MemoryPart

_NEVER = datetime.min.replace(tzinfo=UTC)


class MemoryKeys(MemoryPart, KeyStore):
    """API keys."""

    def put_keys(self, keys: Sequence[Key], *, now: datetime | None = None) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            lost = set()
            for key in keys:
                if key.id in state.keys:
                    lost.add(key.id)
                else:
                    state.keys[key.id] = replace(key, created_at=moment, revoked_at=None)
            return frozenset(lost)

    def keys(self, ids: Collection[str] | None = None) -> list[Key]:
        with self._open() as state:
            found = [key for key in state.keys.values() if ids is None or key.id in ids]
            return sorted(found, key=lambda key: (key.created_at or _NEVER, key.id))

    def revoke_keys(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            living = [key for id in set(ids) if (key := state.keys.get(id)) and key.revoked_at is None]
            for key in living:
                state.keys[key.id] = replace(key, revoked_at=moment)
            return frozenset(key.id for key in living)
