"""Archive tiers in memory.

An original that changed after its copy must not be deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, UNARCHIVED, JobFilter, Page, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.job_match import matches_archived
from tidemill.domain.retention import ArchivedJob, Position, Selection, archive_document
from tidemill.domain.states import ENDED
from tidemill.errors import BadFilter
from tidemill.stores.archive import ArchiveStore
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.filters import page_of
from tidemill.stores.memory.job_queries import executions_of
from tidemill.stores.memory.state import State


class MemoryArchive(MemoryPart, ArchiveStore):
    """The documents of archived jobs."""

    def archivable(self, selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        with self._open() as state:
            return [
                document_of(state, state.jobs[position.id], policy, tier)
                for position in _selected(state, selection)[: selection.limit]
            ]

    def archived_due(self, selection: Selection) -> list[ArchivedJob]:
        with self._open() as state:
            return [state.archive[position.id] for position in _selected(state, selection)[: selection.limit]]

    def ended_beyond(self, selection: Selection, newest: int) -> Position | None:
        with self._open() as state:
            older = _selected(state, selection)[: -newest or None]
            return older[-1] if older else None

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
                and not state.kept_by_flow(document.id)
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

    def remove_archived(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        with self._open() as state:
            same = {
                document.id
                for document in documents
                if (copy := state.archive.get(document.id)) is not None
                and (copy.tier, copy.fingerprint) == (document.tier, document.fingerprint)
            }
            for id in same:
                del state.archive[id]
            return frozenset(same)


def _selected(state: State, selection: Selection) -> list[Position]:
    """The positions of a selection in order, without its limit."""
    rows: Iterable[JobRow | ArchivedJob] = (
        (
            job
            for job in state.jobs.values()
            if not state.kept_by_flow(job.id) and (selection.members or not state.leaves_with_flow(job.id))
        )
        if selection.tier is None
        else (document for document in state.archive.values() if document.tier == selection.tier)
    )
    return sorted(
        position
        for row in rows
        if row.finished_at is not None
        and selection.contains(row.state, row.task, row.tenant, position := Position(row.finished_at, row.id))
    )


def document_of(state: State, job: JobRow, policy: str, tier: str) -> ArchivedJob:
    """The document of an ended job."""
    lines = [entry for _, entry in state.logs.get(job.id, [])]
    items = sorted(state.streams.get(job.id, {}).values(), key=lambda entry: (entry.name, entry.position))
    return archive_document(job, executions_of(state, job), lines, items, tier=tier, policy=policy)


def _unchanged(job: JobRow | None, document: ArchivedJob) -> bool:
    return (
        job is not None
        and job.state in ENDED
        and job.token == document.token
        and job.finished_at == document.finished_at
    )
