"""The part of the store contract that is about keys and the audit. It keeps a key's hash; whether a secret fits, others judge.

18. **A key is written once.** Nothing but its revocation changes it afterwards, and that only once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime

from tidemill.domain.access import Key
from tidemill.domain.ledger import AuditEntry, AuditRecord


class Audit(ABC):
    """Who did what."""

    @abstractmethod
    def record(self, entries: Sequence[AuditEntry], *, now: datetime | None = None) -> list[AuditRecord]:
        """Append to the audit, each entry chained to the one before. Nothing ever changes or removes one."""

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
        """Audit records with a number after that one and before the other, by number, or the ``newest`` first; of one person,
        one action, one subject. A page holds 1 to 1,000 of them; another ``limit`` is ``BadFilter``.
        """


class Keys(ABC):
    """Who may come in."""

    @abstractmethod
    def put_keys(self, keys: Sequence[Key], *, now: datetime | None = None) -> frozenset[str]:
        """Write new keys, dated now and not revoked; the lost ids: those that were there already, which stay as they are."""

    @abstractmethod
    def keys(self, ids: Collection[str] | None = None) -> list[Key]:
        """The keys of these ids, or all of them, by creation and id; revoked and expired ones, too."""

    @abstractmethod
    def revoke_keys(self, ids: Collection[str], *, now: datetime | None = None) -> frozenset[str]:
        """Revoke keys, as of now; those that were not revoked before."""
