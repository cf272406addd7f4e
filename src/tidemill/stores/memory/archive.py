"""Archive tiers in memory.

An original that changed after its copy must not be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, UNARCHIVED, JobFilter, Page, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.retention import ArchivedJob, ArchivePolicy, archive_document
from tidemill.domain.states import ENDED
from tidemill.errors import BadFilter
from tidemill.stores.archive import ArchiveStore
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.filters import matches_archived, page_of
from tidemill.stores.memory.job_queries import executions_of
from tidemill.stores.memory.state import State


class MemoryArchive(MemoryPart, ArchiveStore):
    """The documents of archived jobs."""

    def archivable(self, policy: ArchivePolicy, *, now: datetime | None = None) -> list[ArchivedJob]:
        with self._open() as state:
            ended_by = self._at(now) - policy.max_age
            due = [
                (job.finished_at, job.id)
                for job in state.jobs.values()
                if job.finished_at is not None
                and job.finished_at <= ended_by
                and job.state in policy.states
                and (not policy.tasks or job.task in policy.tasks)
            ]
            return [_document(state, state.jobs[id], policy) for _, id in sorted(due)[: policy.batch]]

    def put_archive(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        with self._open() as state:
            moment = self._at(now)
            for document in documents:
                state.archive[document.id] = replace(document, archived_at=moment)

    def archived(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        with self._open() as state:
            found = [state.archive[id] for id in set(ids) if id in state.archive]
            ours = [document for document in found if tenant in (ALL_TENANTS, document.tenant)]
            return sorted(ours, key=lambda document: document.id.int)

    def forget(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        with self._open() as state:
            same = {
                document.id
                for document in documents
                if _unchanged(state.find(document.id, document.tenant), document)
            }
            for id in same:
                state.mark_blobs(id, archived=True)
                state.remove(id)
            return frozenset(same)

    def search_archive(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        with self._open() as state:
            for name in UNARCHIVED:
                if getattr(where, name):
                    raise BadFilter(f"archived jobs cannot be searched by {name}; leave it out", field=name)
            rows = (document for document in state.archive.values() if matches_archived(where, document))
            return page_of(rows, lambda document: document.id, sort=sort, limit=limit, after=after)

    def purge_archive(self, ended_before: datetime, *, tier: str, limit: int) -> int:
        with self._open() as state:
            old = sorted(
                (document.finished_at, document.id)
                for document in state.archive.values()
                if document.tier == tier and document.finished_at < ended_before
            )
            purged = old[: max(limit, 0)]
            for _, id in purged:
                del state.archive[id]
                state.mark_blobs(id, archived=False)
            return len(purged)


def _document(state: State, job: JobRow, policy: ArchivePolicy) -> ArchivedJob:
    lines = [entry for _, entry in state.logs.get(job.id, [])]
    return archive_document(job, executions_of(state, job), lines, tier=policy.tier, policy=policy.name)


def _unchanged(job: JobRow | None, document: ArchivedJob) -> bool:
    return (
        job is not None
        and job.state in ENDED
        and job.token == document.token
        and job.finished_at == document.finished_at
    )
