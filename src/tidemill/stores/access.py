"""The part of the store contract for API keys, sign-in sessions and the audit log.

The store keeps a key's hash; the domain compares secrets.

18. **A key is written once.** Only its revocation changes it, and that only once. The same holds for a session and its end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from tidemill.domain.access import Key
from tidemill.domain.records import AuditEntry, AuditRecord
from tidemill.domain.sessions import StoredSession


class AuditStore(ABC):
    """The audit log."""

    @abstractmethod
    def record(self, entries: Sequence[AuditEntry], *, now: datetime | None = None) -> list[AuditRecord]:
        """Append entries, each chained to the one before. No verb changes or deletes an entry."""

    @abstractmethod
    def audit(
        self,
        *,
        tenant: str,
        after: int = 0,
        before: int | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        newest: bool = False,
        limit: int = 1000,
    ) -> list[AuditRecord]:
        """Audit records with a number after the first and before the second, by number or ``newest`` first; optionally of one
        person, action or subject. A page holds 1 to 1,000; any other ``limit`` raises ``BadFilter``.
        """

    @abstractmethod
    def audit_gaps(self) -> list[str]:
        """The names of the triggers that should protect the audit log but are missing, disabled or changed."""


class KeyStore(ABC):
    """API keys."""

    @abstractmethod
    def put_keys(self, keys: Sequence[Key], *, now: datetime | None = None) -> frozenset[str]:
        """Insert new keys, created now and not revoked. Returns the lost ids: existing ones, which are unchanged."""

    @abstractmethod
    def keys(self, ids: Collection[str] | None = None) -> list[Key]:
        """The keys with these ids, or all of them, by creation and id, including revoked and expired ones."""

    @abstractmethod
    def revoke_keys(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        """Revoke keys as of now. Returns those that were not revoked before."""


class SessionStore(ABC):
    """Sign-in sessions."""

    @abstractmethod
    def put_sessions(
        self, sessions: Sequence[StoredSession], *, now: datetime | None = None
    ) -> frozenset[str]:
        """Delete expired sessions, then insert new ones, created now and not ended.

        Returns the lost ids: those that exist, and those whose ``single_use`` another stored session has.
        """

    @abstractmethod
    def sessions(self, ids: Collection[str] | None = None) -> list[StoredSession]:
        """The sessions with these ids, or all of them, by creation and id, including ended and expired ones."""

    @abstractmethod
    def end_sessions(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        """End sessions as of now. Returns those that had not ended before."""
