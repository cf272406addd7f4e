"""Erasure of jobs in every tier."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from tidemill.archive.places import ArchivePlace
from tidemill.archive.restoration import ArchiveClient
from tidemill.archive.run import NAMED
from tidemill.domain.job import JobRow
from tidemill.domain.records import AuditEntry
from tidemill.domain.retention import LIVE_TIER, ArchivedJob
from tidemill.domain.states import ENDED
from tidemill.errors import IllegalTransition
from tidemill.stores.base import Store

BATCH = 500


@dataclass(slots=True)
class Erased:
    """Result of an erasure: the number of jobs, and their copies by tier. A job with two copies counts in both tiers."""

    jobs: int = 0
    tiers: dict[str, int] = field(default_factory=dict)
    dry_run: bool = False


class Erasure:
    """One erasure: refuses jobs that have not ended, then deletes batch by batch."""

    def __init__(self, client: ArchiveClient, live: Store, *, tenant: str, by: str) -> None:
        self._client, self._live, self._tenant, self._by = client, live, tenant, by
        self._ids: dict[UUID, None] = {}
        self._tiers: dict[str, int] = {}

    def add_live(self, jobs: Iterable[JobRow]) -> None:
        """Add rows of the live tables."""
        for job in jobs:
            if job.state not in ENDED:
                raise IllegalTransition(
                    f"cannot erase job {job.id}: it is {job.state}; cancel it first", id=job.id
                )
            self._add(job.id, LIVE_TIER)

    def add_archived(self, copies: Iterable[ArchivedJob]) -> None:
        """Add documents of one place."""
        for copy in copies:
            self._add(copy.id, copy.tier)

    def _add(self, id: UUID, tier: str) -> None:
        self._ids[id] = None
        self._tiers[tier] = self._tiers.get(tier, 0) + 1

    def run(self, *, dry_run: bool, flows: bool = False) -> Erased:
        """Erase the added jobs; with ``flows``, also the archived flows of the tenant. ``dry_run`` only counts."""
        done = Erased(len(self._ids), self._tiers, dry_run)
        if flows and not dry_run:
            self._live.erase_archived_flows(self._tenant)
        if dry_run:
            return done
        left = iter(self._ids)
        while batch := list(islice(left, BATCH)):
            self._erase(batch)
        # Also without jobs: an earlier erasure may have ended between its deletions and this.
        for store in self._stores():
            store.scrub()
        if self._ids:
            self._live.notify(["ended", "change"])
        return done

    def _erase(self, ids: list[UUID]) -> None:
        """Erase one batch. A crash in between leaves copies that the same call finds and erases again."""
        self._refuse_reopened(ids)
        with self._live.transaction():
            deleted = self._live.delete(ids, tenant=self._tenant)
            self._refuse_kept(ids)
            archived = self._live.erase_archived(ids, tenant=self._tenant)
            self._live.drop_blobs(ids)
            after: dict[str, object] = {
                "done": len(ids),
                "live": len(deleted),
                "archived": len(archived),
                "ids": [str(id) for id in ids[:NAMED]],
            }
            entry = AuditEntry(self._by, "jobs.erased", "jobs", self._tenant, None, after)
            self._live.record([entry], now=self._client.pin)
        for place in self._other_places():
            place.erase(ids, tenant=self._tenant)

    def _other_places(self) -> list[ArchivePlace]:
        return [place for place in self._client.archive_places() if place.store is not self._live]

    def _refuse_reopened(self, ids: list[UUID]) -> None:
        for job in self._live.get(ids, tenant=self._tenant):
            if job.state not in ENDED:
                raise IllegalTransition(
                    f"cannot erase job {job.id}: it is {job.state} again; cancel it first", id=job.id
                )

    def _refuse_kept(self, ids: list[UUID]) -> None:
        """Refuse ended jobs that a live flow, or a job that waits, needs: ``delete`` leaves them."""
        for job in self._live.get(ids, tenant=self._tenant):
            raise IllegalTransition(
                f"cannot erase job {job.id}: its flow, or a job that needs it, has not ended; cancel it first",
                id=job.id,
            )

    def _stores(self) -> list[Store]:
        return [self._live, *(place.store for place in self._other_places() if place.store is not None)]
