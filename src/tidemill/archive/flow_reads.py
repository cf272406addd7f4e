"""Reads of a flow, from the live tables or from the archive."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import NamedTuple, Protocol
from uuid import UUID

from tidemill.archive.contents import read_archived
from tidemill.archive.places import ArchivePlace
from tidemill.domain.archived_flows import ArchivedFlow, FlowParts, read_flow_parts, read_flow_row
from tidemill.domain.graph import Edge, FlowFilter, FlowRow, GroupCounts
from tidemill.domain.job import JobRow
from tidemill.errors import FlowNotFound, IllegalTransition
from tidemill.stores.base import Store

_PAGE = 500


class FlowClient(Protocol):
    """The parts of a client that reads of flows need."""

    def store(self, name: str | None) -> Store:
        """Return the store with this name."""

    def archive_places(self, *, store: str | None = None) -> list[ArchivePlace]:
        """Return the places of archived jobs: tables first, then files."""


class FlowReads(Protocol):
    """The reads that the picture and the numbers of a flow need. A store has them all."""

    def flows(self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None) -> list[FlowRow]:
        """The groups inside a group, the newest first."""

    def flow_jobs(
        self, flow_id: UUID, *, tenant: str, after: UUID | None = None, limit: int = 1000
    ) -> list[JobRow]:
        """The jobs of a flow, by id."""

    def group_jobs(self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000) -> list[JobRow]:
        """The members of a group, by position."""

    def edges_of(self, ids: Collection[UUID]) -> list[Edge]:
        """The edges of these jobs."""

    def group_counts(self, ids: Collection[UUID]) -> list[GroupCounts]:
        """The numbers of members of these groups."""

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[JobRow]:
        """The jobs with these ids."""


class ArchivedFlowReads:
    """Reads of an archived flow: its document, and its jobs wherever their policy has put them.

    A job that is in the live tables, because an archive run has not reached it or it was restored, is read from there.
    """

    def __init__(self, client: FlowClient, place: str, flow: ArchivedFlow) -> None:
        self._client, self._place, self._flow = client, place, flow

    @cached_property
    def _parts(self) -> FlowParts:
        flow = self._flow
        if not flow.document:
            flows = self._client.store(self._place).archived_flows([flow.id], tenant=flow.tenant)
            if not flows:
                raise FlowNotFound(f"{flow.kind.value} {flow.id} is gone: it was deleted", id=flow.id)
            flow = flows[0]
        return read_flow_parts(flow)

    @cached_property
    def _jobs(self) -> dict[UUID, JobRow]:
        ids, tenant = self._parts.jobs, self._flow.tenant
        store = self._client.store(self._place)
        jobs: dict[UUID, JobRow] = {}
        for at in range(0, len(ids), _PAGE):
            jobs |= {job.id: job for job in store.get(ids[at : at + _PAGE], tenant=tenant)}
        for place in self._client.archive_places(store=self._place):
            left = [id for id in ids if id not in jobs]
            for at in range(0, len(left), _PAGE):
                copies = place.get(left[at : at + _PAGE], tenant=tenant)
                jobs |= {copy.id: read_archived(copy) for copy in copies}
        return dict(sorted(jobs.items(), key=lambda item: item[0].int))

    def flows(self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None) -> list[FlowRow]:
        """The groups inside a group, the newest first."""
        rows = [
            group
            for group in self._parts.groups
            if group.group_id == where.group_id and (after is None or group.id.int < after.int)
        ]
        return sorted(rows, key=lambda row: -row.id.int)[:limit]

    def flow_jobs(
        self, flow_id: UUID, *, tenant: str, after: UUID | None = None, limit: int = 1000
    ) -> list[JobRow]:
        """The jobs of the flow, by id."""
        return [job for id, job in self._jobs.items() if after is None or id.int > after.int][:limit]

    def group_jobs(self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000) -> list[JobRow]:
        """The members of a group, by position."""
        rows = [
            (job.details.position, job)
            for job in self._jobs.values()
            if job.details.group_id == group_id
            and job.details.position is not None
            and job.details.position > after
        ]
        rows.sort(key=lambda row: (row[0], row[1].id.int))
        return [job for _, job in rows[:limit]]

    def edges_of(self, ids: Collection[UUID]) -> list[Edge]:
        """The edges from or to these jobs and groups."""
        wanted = set(ids)
        return [edge for edge in self._parts.edges if edge.job_id in wanted or edge.needs_id in wanted]

    def group_counts(self, ids: Collection[UUID]) -> list[GroupCounts]:
        """The numbers of members of these groups."""
        wanted = set(ids)
        return [count for count in self._parts.counts if count.id in wanted]

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[JobRow]:
        """The jobs with these ids."""
        return [self._jobs[id] for id in ids if id in self._jobs]


class FoundFlow(NamedTuple):
    """A flow and its document, if it is archived or on its way to the archive."""

    row: FlowRow
    archived: ArchivedFlow | None


def find_flow(client: FlowClient, place: str, id: UUID, tenant: str) -> FoundFlow | None:
    """Find a flow in the live tables or in the archive."""
    store = client.store(place)
    rows = store.flow([id], tenant=tenant)
    if rows and rows[0].ended_at is None:
        return FoundFlow(rows[0], None)
    documents = store.archived_flows([id], tenant=tenant)
    if rows and documents and documents[0].ended_at != rows[0].ended_at:
        documents = []  # an archive run wrote it, and then a job of the flow was retried
    if documents:
        return FoundFlow(rows[0] if rows else read_flow_row(documents[0]), documents[0])
    return FoundFlow(rows[0], None) if rows else None


def list_flows(
    client: FlowClient, place: str, where: FlowFilter, *, limit: int, after: UUID | None, archived: bool
) -> list[FoundFlow]:
    """One page of flows, the newest first; with ``archived``, also those of the archive."""
    store = client.store(place)
    rows: Iterable[FlowRow] = store.flows(where, limit=limit, after=after)
    flows = {row.id: FoundFlow(row, None) for row in rows}
    if archived:
        for document in store.search_archived_flows(where, limit=limit, after=after):
            flows.setdefault(document.id, FoundFlow(read_flow_row(document), document))
    return sorted(flows.values(), key=lambda flow: -flow.row.id.int)[:limit]


def refuse_archived(verb: str, row: FlowRow, archived: ArchivedFlow | None) -> None:
    """Refuse to change a flow that is archived: its joins are gone."""
    if archived is not None:
        raise IllegalTransition(
            f"cannot {verb} {row.kind.value} {row.id}: it is archived; start it again, "
            "or restore single jobs with app.archive.restore",
            id=row.id,
        )
