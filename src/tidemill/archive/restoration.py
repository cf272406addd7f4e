"""Return of archived jobs to the live tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from tidemill.archive.contents import read_restored
from tidemill.archive.places import ArchivePlace
from tidemill.archive.run import NAMED
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.job import JobRow
from tidemill.domain.records import AuditEntry
from tidemill.domain.retention import ArchivedJob
from tidemill.stores.base import Store

BATCH = 500


class ArchiveClient(Protocol):
    """The parts of a client that changes of archived jobs need."""

    @property
    def pin(self) -> datetime | None:
        """The time to pass to a store; None for the store's own clock."""

    def store(self, name: str | None) -> Store:
        """Return the store with this name."""

    def archive_places(self) -> list[ArchivePlace]:
        """Return the places of archived jobs: tables first, then files."""

    def publish_acts(self, name: str, jobs: Iterable[JobRow]) -> None:
        """Publish an action on these jobs."""


@dataclass(slots=True)
class Restored:
    """Result of restoring jobs: each id is in one of the first four lists."""

    restored: list[UUID] = field(default_factory=list)
    live: list[UUID] = field(default_factory=list)  #: a live job has this id, so nothing was changed
    missing: list[UUID] = field(default_factory=list)  #: no tier has this job
    damaged: list[UUID] = field(default_factory=list)  #: the document differs from its fingerprint
    retried: list[UUID] = field(
        default_factory=list
    )  #: of the restored jobs; completed ones cannot be retried


def restore(
    client: ArchiveClient, ids: Sequence[UUID], *, tenant: str, store: str | None, retry: bool, by: str
) -> Restored:
    """Restore jobs of a tenant in batches; each batch is one transaction with its audit entry."""
    done = Restored()
    unique = list(dict.fromkeys(ids))
    for start in range(0, len(unique), BATCH):
        _restore_batch(client, unique[start : start + BATCH], tenant, client.store(store), retry, by, done)
    if done.restored:
        client.store(store).notify(["ended", "change"])
    return done


def _restore_batch(
    client: ArchiveClient,
    ids: Sequence[UUID],
    tenant: str,
    target: Store,
    retry: bool,
    by: str,
    done: Restored,
) -> None:
    live = {job.id for job in target.get(ids, tenant=tenant)}
    done.live += [id for id in ids if id in live]
    copies = _copies(client, [id for id in ids if id not in live], tenant)
    done.missing += [id for id in ids if id not in live and id not in copies]
    done.damaged += [id for id, copy in copies.items() if not copy.sound]
    jobs = [read_restored(copy) for copy in copies.values() if copy.sound]
    if not jobs:
        return
    with target.transaction():
        new = target.restore(jobs)
        target.release_blobs(new)
        rows = [item.job for item in jobs if item.job.id in new]
        again = [row for row in rows if retry and row.state in expected(Action.RETRY)]
        retried = target.move([move(row, Action.RETRY, "restored and retried") for row in again])
        if rows:
            after: dict[str, object] = {
                "done": len(rows),
                "retried": len(retried),
                "tiers": sorted({copies[row.id].tier for row in rows}),
                "ids": [str(row.id) for row in rows[:NAMED]],
            }
            entry = AuditEntry(by, "jobs.restored", "jobs", tenant, None, after)
            target.record([entry], now=client.pin)
    done.restored += [row.id for row in rows]
    # A job with this id appeared since it was looked up.
    done.live += [item.job.id for item in jobs if item.job.id not in new]
    done.retried += [row.id for row in rows if row.id in retried]
    client.publish_acts("job.restored", rows)
    if retried:
        target.notify([f"ready:{queue}" for queue in {row.queue for row in rows}])


def _copies(client: ArchiveClient, ids: Sequence[UUID], tenant: str) -> dict[UUID, ArchivedJob]:
    """The copies by id, each from the first place that has one."""
    copies: dict[UUID, ArchivedJob] = {}
    for place in client.archive_places():
        left = [id for id in ids if id not in copies]
        if not left:
            break
        copies |= {copy.id: copy for copy in place.get(left, tenant=tenant)}
    return copies
