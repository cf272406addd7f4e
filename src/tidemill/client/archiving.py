"""One run of the archive: jobs that policies are due for leave the live tables, batch by batch. What is due, the policies say.

A copy is written, read back and compared before its original goes. Crash points, where a process may die between two lines: (1) before
the copies are written, nothing has happened; (2) before they were read back, and (3) before their originals are gone, there are both: the
next run writes the same copies again; (4) the originals, the sums and the audit's entry go and come in one transaction.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.client.acting import NAMED, note
from tidemill.client.core import Client
from tidemill.domain.archival import LEASE, MOST_POLICIES, PolicySums, lease_facts, read_sums
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, believed
from tidemill.errors import ArchiveRunning, LeaseLost, StoreError
from tidemill.ids import new_id
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.client")

TTL = timedelta(seconds=60)
"""How long the lease lasts without a word: much longer than one batch takes."""

_TRIES = 10


@dataclass(slots=True)
class PolicyRun:
    """What a run did for one policy. ``error`` is the code of what ended it before it was through."""

    policy: str
    tier: str
    archived: int = 0
    verified: int = 0
    failed: int = 0  #: copies that were not what was written; their jobs stay
    changed: int = 0  #: jobs that were opened again meanwhile; they stay
    bytes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    more: bool = False  #: there is more that is due
    took: timedelta = timedelta(0)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """What a run of the archive did, in all and by policy; ``more`` says that it stopped before all was done."""

    at: datetime
    archived: int
    failed: int
    bytes: int
    more: bool
    took: timedelta
    policies: list[PolicyRun]


class _Again(Exception):
    """The lease changed hands between two looks."""


class Archiving:
    """One run: takes the lease, moves what is due, and gives the lease back."""

    def __init__(self, client: Client, target: Store) -> None:
        self._source, self._target, self._clock = client.store(None), target, client.clock
        self._pin = client.pin
        self._holder: UUID = new_id()
        self._term = 0
        self._sums: dict[str, PolicySums] = {}
        self._began = self._clock.monotonic()

    def run(self, policies: Sequence[ArchivePolicy], *, limit: int, budget: timedelta) -> ArchiveRun:
        """Move at most ``limit`` jobs, for about ``budget``; a policy that fails does not stop the others."""
        until = self._began + budget.total_seconds()
        at = self._now()
        self._take()
        runs: list[PolicyRun] = []
        errors: list[StoreError] = []
        try:
            for policy in policies:
                run = PolicyRun(policy.name, policy.tier)
                runs.append(run)
                began = self._clock.monotonic()
                try:
                    self._follow(policy, run, limit - sum(each.archived for each in runs), until)
                except StoreError as error:
                    _log.warning("archive policy %s was not finished: %s", policy.name, error)
                    errors.append(error)
                    run.error, run.more = error.code, True
                    self._of(policy).errors += 1
                run.took = timedelta(seconds=self._clock.monotonic() - began)
                if run.verified or run.failed or run.error:
                    self._of(policy).ran(run.took)
        finally:
            self._give_back()
        if errors and len(errors) == len(runs):
            raise errors[0]
        return ArchiveRun(
            at=at,
            archived=sum(run.archived for run in runs),
            failed=sum(run.failed for run in runs),
            bytes=sum(run.bytes for run in runs),
            more=any(run.more for run in runs),
            took=self._took(),
            policies=runs,
        )

    # Moving ------------------------------------------------------------------------------------------------------------

    def _follow(self, policy: ArchivePolicy, run: PolicyRun, room: int, until: float) -> None:
        while True:
            if room <= 0 or self._clock.monotonic() >= until:
                one = replace(policy, batch=1)
                run.more = bool(self._source.archivable(one, now=self._pin))
                return
            batch = replace(policy, batch=min(policy.batch, room))
            due = self._source.archivable(batch, now=self._pin)
            if not due:
                return
            # (1)
            self._target.put_archive(due, now=self._pin)
            # (2)
            copies = self._target.archived([document.id for document in due], tenant=ALL_TENANTS)
            sound, doubtful = believed(due, copies)
            # (3)
            gone = self._let_go(policy, run, sound, doubtful)
            # (4)
            room -= gone
            if not gone:  # what stays would be found again and again
                run.more = True
                return
            if len(due) < batch.batch:
                return

    def _let_go(
        self, policy: ArchivePolicy, run: PolicyRun, sound: list[ArchivedJob], doubtful: list[ArchivedJob]
    ) -> int:
        """Remove the originals of copies that are sound, and write down that it was done."""
        sums, at = self._of(policy).copy(), self._now()
        with self._source.transaction():
            ids = self._source.forget(sound)
            gone = [document for document in sound if document.id in ids]
            sums.verified += len(sound)
            sums.failed += len(doubtful)
            sums.changed += len(sound) - len(gone)
            sums.moved(gone, at)
            self._renew({**self._sums, policy.name: sums}, at)
            if gone:
                facts: dict[str, object] = {
                    "policy": policy.name,
                    "tier": policy.tier,
                    "done": len(gone),
                    "skipped": len(sound) + len(doubtful) - len(gone),
                    "ids": [str(document.id) for document in gone[:NAMED]],
                }
                note(self._source, "jobs.archived", "jobs", ALL_TENANTS, after=facts, now=self._pin)
        self._sums[policy.name] = sums
        if doubtful:
            _log.error(
                "archive policy %s: %d copies are not what was written, and their jobs stay; the first is %s",
                policy.name,
                len(doubtful),
                doubtful[0].id,
            )
        run.verified += len(sound)
        run.failed += len(doubtful)
        run.changed += len(sound) - len(gone)
        run.archived += len(gone)
        run.bytes += sum(len(document.document) for document in gone)
        for document in gone:
            run.statuses[document.state.value] = run.statuses.get(document.state.value, 0) + 1
        return len(gone)

    def _of(self, policy: ArchivePolicy) -> PolicySums:
        found = self._sums.get(policy.name)
        if found is None:
            if len(self._sums) >= MOST_POLICIES:  # those that were not used for the longest time make room
                del self._sums[min(self._sums, key=lambda name: self._sums[name].last_at or "")]
            found = self._sums[policy.name] = PolicySums(policy.name, policy.tier)
        found.tier = policy.tier
        return found

    # The lease ---------------------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take the lease, with the sums of those who had it before."""
        for _ in range(_TRIES):
            with contextlib.suppress(_Again):
                self._try()
                return
        raise _running()

    def _try(self) -> None:
        """A new term begins with an empty page. So the sums are read before and written down again in the same transaction; if
        anybody had the lease in between, which its term tells, they may have risen, and nothing of this has happened.
        """
        with self._source.transaction():
            found = [lease for lease in self._source.leases() if lease.name == LEASE]
            known = found[0] if found else None
            if known is not None and known.expires_at is not None and known.expires_at > self._now():
                raise _running()
            lease = self._source.acquire(LEASE, self._holder, ttl=TTL, now=self._pin)
            if lease is None:
                raise _running()
            if lease.term != (0 if known is None else known.term) + 1:
                raise _Again
            sums = {} if known is None else read_sums(known.metadata)
            self._term = lease.term
            self._renew(sums, self._now())
        self._sums = sums

    def _renew(self, sums: dict[str, PolicySums], at: datetime) -> None:
        facts = lease_facts(sums, at=at, took=self._took())
        kept = self._source.renew(LEASE, self._holder, self._term, ttl=TTL, metadata=facts, now=self._pin)
        if not kept:
            raise LeaseLost(
                "the lease of the archive was taken or has run out; what was archived until then is archived",
                name=LEASE,
            )

    def _give_back(self) -> None:
        """If the store cannot be told, the lease runs out by itself."""
        with contextlib.suppress(StoreError, LeaseLost), self._source.transaction():
            self._renew(self._sums, self._now())
            self._source.release(LEASE, self._holder, self._term)

    def _took(self) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - self._began)

    def _now(self) -> datetime:
        return self._pin or self._source.now()


def _running() -> ArchiveRunning:
    return ArchiveRunning("somebody archives just now; wait until that run has ended", name=LEASE)
