"""``app.audit``: reading the audit log, and verifying its hash chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.client.schedules.handle import TenantApi
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import GENESIS, AuditRecord, first_break

BATCH = 1_000


class Verified(NamedTuple):
    """Result of a verification: the number of intact entries, and the number of the first broken one.

    ``head`` is the hash of the last intact entry. A copy kept elsewhere shows later whether the end was cut off.
    """

    ok: bool
    entries: int
    broken_at: int | None
    head: str = GENESIS


class Audit(TenantApi):
    """The audit log of an app's store.

    Each method uses the current tenant unless it is called with another tenant, or with ``"*"`` for all tenants.
    """

    def list(
        self,
        *,
        tenant: str | None = None,
        after: int = 0,
        before: int | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> Sequence[AuditRecord]:
        """Return entries by number, or ``newest`` first; continue from the last number with ``after`` or ``before``."""
        return self._store.audit(
            tenant=self._tenant(tenant),
            after=after,
            before=before,
            who=who,
            action=action,
            subject=subject,
            newest=newest,
            limit=limit,
        )

    def verify(self) -> Verified:
        """Verify the whole chain, of all tenants, and return where it breaks."""
        number, head = 0, GENESIS
        while True:
            page: Sequence[AuditRecord]
            try:
                page = self._store.audit(tenant=ALL_TENANTS, after=number, limit=BATCH)
                broken = first_break(page, head, number)
            except (ValueError, OverflowError):  # the entry was tampered with so that it cannot be parsed
                page = self._readable(number)
                broken = first_break(page, head, number) or number + len(page) + 1
            whole = page if broken is None else page[: broken - number - 1]
            if whole:
                number, head = whole[-1].number, whole[-1].hash
            if broken is not None:
                return Verified(False, number, broken, head)
            if not page:
                return Verified(True, number, None, head)

    def _readable(self, after: int) -> Sequence[AuditRecord]:
        """Return the entries from there on, up to the first that cannot be parsed."""
        found: list[AuditRecord] = []
        try:
            while page := self._store.audit(tenant=ALL_TENANTS, after=after + len(found), limit=1):
                found += page
        except (ValueError, OverflowError):
            pass
        return found

    # Async twins -------------------------------------------------------------------------------------------------------

    async def alist(
        self,
        *,
        tenant: str | None = None,
        after: int = 0,
        before: int | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> Sequence[AuditRecord]:
        return await self._await(
            self.list,
            tenant=tenant,
            after=after,
            before=before,
            who=who,
            action=action,
            subject=subject,
            newest=newest,
            limit=limit,
        )

    async def averify(self) -> Verified:
        found: Verified = await self._client.in_thread(self.verify)
        return found
