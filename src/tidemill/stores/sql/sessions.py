"""Sign-in sessions in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from tidemill.domain.sessions import StoredSession
from tidemill.stores.access import SessionStore
from tidemill.stores.sql.base import SqlPart


class SqlSessions(SqlPart, SessionStore):
    """put_sessions, sessions, end_sessions."""

    def put_sessions(
        self, sessions: Sequence[StoredSession], *, now: datetime | None = None
    ) -> frozenset[str]:
        if not sessions:
            return frozenset()
        lost = set()
        with self._db.transaction():
            self._db.run("expire_sessions", {"now": now})
            for session in sessions:
                takes = {
                    "now": now,
                    "id": session.id,
                    "who": session.who,
                    "key_id": session.key_id,
                    "grant_json": session.grant_json,
                    "issuer": session.issuer,
                    "subject": session.subject,
                    "provider_session": session.provider_session,
                    "single_use": session.single_use,
                    "expires_at": session.expires_at,
                }
                if not self._db.run("put_sessions", takes):
                    lost.add(session.id)
        return frozenset(lost)

    def sessions(self, ids: Collection[str] | None = None) -> list[StoredSession]:
        rows = self._db.run("sessions", {"ids": None if ids is None else list(ids)})
        return [StoredSession(*row) for row in rows]

    def end_sessions(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        if not ids:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("end_sessions", {"now": now, "ids": list(ids)}))
