"""Return of archived jobs to the live tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.client.access import NAMED, note
from tidemill.client.archive_documents import read_restored
from tidemill.domain.decide import Action, move
from tidemill.domain.retention import ArchivedJob

if TYPE_CHECKING:
    from tidemill.client.core import Client

BATCH = 500


@dataclass(slots=True)
class Restored:
    """Result of restoring jobs: each id is in one of the first four lists."""

    restored: list[UUID] = field(default_factory=list)
    live: list[UUID] = field(default_factory=list)  #: a live job has this id, so nothing was changed
    missing: list[UUID] = field(default_factory=list)  #: no tier has this job
    damaged: list[UUID] = field(default_factory=list)  #: the document differs from its fingerprint
    retried: list[UUID] = field(default_factory=list)  #: of the restored jobs


def restore(client: Client, ids: Sequence[UUID], *, tenant: str, store: str | None, retry: bool) -> Restored:
    """Restore jobs of a tenant in batches; each batch is one transaction with its audit entry."""
    done = Restored()
    unique = list(dict.fromkeys(ids))
    for start in range(0, len(unique), BATCH):
        _restore_batch(client, unique[start : start + BATCH], tenant, store, retry, done)
    if done.restored:
        client.store(store).notify(["ended", "change"])
    return done


def _restore_batch(
    client: Client, ids: Sequence[UUID], tenant: str, store: str | None, retry: bool, done: Restored
) -> None:
    target = client.store(store)
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
        rows = [item.job for item in jobs if item.job.id in new]
        retried = (
            target.move([move(row, Action.RETRY, "restored and retried") for row in rows]) if retry else ()
        )
        if rows:
            after = {
                "done": len(rows),
                "retried": len(retried),
                "tiers": sorted({copies[row.id].tier for row in rows}),
                "ids": [str(row.id) for row in rows[:NAMED]],
            }
            note(target, "jobs.restored", "jobs", tenant, after=after, now=client.pin)
    done.restored += [row.id for row in rows]
    # A job with this id appeared since it was looked up.
    done.live += [item.job.id for item in jobs if item.job.id not in new]
    done.retried += [row.id for row in rows if row.id in retried]
    client.publish_acts("job.restored", rows)
    if retried:
        target.notify([f"ready:{queue}" for queue in {row.queue for row in rows}])


def _copies(client: Client, ids: Sequence[UUID], tenant: str) -> dict[UUID, ArchivedJob]:
    """The copies by id, each from the first place that has one."""
    found: dict[UUID, ArchivedJob] = {}
    for place in client.archive_places():
        left = [id for id in ids if id not in found]
        if not left:
            break
        found |= {copy.id: copy for copy in place.get(left, tenant=tenant)}
    return found
