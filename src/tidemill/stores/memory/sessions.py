"""Sign-in sessions in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tidemill.domain.sessions import StoredSession
from tidemill.stores.access import SessionStore
from tidemill.stores.memory.core import MemoryPart

_NEVER = datetime.min.replace(tzinfo=UTC)


class MemorySessions(MemoryPart, SessionStore):
    """Sign-in sessions."""

    def put_sessions(
        self, sessions: Sequence[StoredSession], *, now: datetime | None = None
    ) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            if sessions:
                for stored in [*state.sessions.values()]:
                    if stored.expires_at <= moment:
                        del state.sessions[stored.id]
            lost = set()
            for session in sessions:
                used = {stored.single_use for stored in state.sessions.values()} - {None}
                if session.id in state.sessions or session.single_use in used:
                    lost.add(session.id)
                else:
                    state.sessions[session.id] = replace(session, created_at=moment, ended_at=None)
            return frozenset(lost)

    def sessions(self, ids: Collection[str] | None = None) -> list[StoredSession]:
        with self._open() as state:
            chosen = [session for session in state.sessions.values() if ids is None or session.id in ids]
            return sorted(chosen, key=lambda session: (session.created_at or _NEVER, session.id))

    def end_sessions(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        with self._open() as state:
            moment = self._at(now)
            living = [
                session for id in set(ids) if (session := state.sessions.get(id)) and session.ended_at is None
            ]
            for session in living:
                state.sessions[session.id] = replace(session, ended_at=moment)
            return frozenset(session.id for session in living)
