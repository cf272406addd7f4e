"""API keys in the SQL store."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from tidemill.domain.access import Key, Role
from tidemill.domain.permissions import NO_ACCESS, Access
from tidemill.stores.access import KeyStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row


class SqlKeys(SqlPart, KeyStore):
    """put_keys, keys, revoke_keys."""

    def put_keys(self, keys: Sequence[Key], *, now: datetime | None = None) -> frozenset[str]:
        if not keys:
            return frozenset()
        lost = set()
        with self._db.transaction():
            for key in keys:
                takes = {
                    "now": now,
                    "id": key.id,
                    "hash": key.hash,
                    "name": key.name,
                    "role": key.role.value,
                    "tenant": key.tenant,
                    "created_by": key.created_by,
                    "expires_at": key.expires_at,
                    "max_priority": key.max_priority,
                    "grant_json": json.dumps(key.access.data()) if key.access != NO_ACCESS else None,
                }
                if not self._db.run("put_keys", takes):
                    lost.add(key.id)
        return frozenset(lost)

    def keys(self, ids: Collection[str] | None = None) -> list[Key]:
        return [_key(row) for row in self._db.run("keys", {"ids": None if ids is None else list(ids)})]

    def revoke_keys(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        if not ids:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("revoke_keys", {"now": now, "ids": list(ids)}))


def _key(row: Row) -> Key:
    *columns, grant_json = row
    id, name, role, *rest = columns
    key = Key(id, name, Role(role), *rest)
    return key if grant_json is None else replace(key, access=Access.read(json.loads(grant_json)))
