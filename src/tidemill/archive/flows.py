"""Archiving of flows: a flow leaves the live tables as one, with its jobs, groups and edges."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from tidemill.domain.archived_flows import ArchivedFlow, FlowParts, archived_flow, edges_from, read_flow_parts
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Edge, FlowFilter, FlowRow, GroupKind
from tidemill.stores.base import Store

PAGE = 500


class GroupReads(Protocol):
    """A store, or an archived flow."""

    def flows(self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None) -> list[FlowRow]:
        """The matching groups with ids below ``after``, the newest first."""


def groups_of(store: GroupReads, flow: FlowRow) -> list[FlowRow]:
    """The groups inside a flow, at any depth."""
    groups: list[FlowRow] = []
    open_ids = [flow.id]
    while open_ids:
        id = open_ids.pop()
        after: UUID | None = None
        where = FlowFilter(flow.tenant, kinds=frozenset({GroupKind.MAP}), group_id=id)
        while page := store.flows(where, limit=PAGE, after=after):
            groups += page
            open_ids += [row.id for row in page]
            after = page[-1].id
            if len(page) < PAGE:
                break
    return groups


def flow_parts(store: Store, flow: FlowRow) -> FlowParts:
    """The jobs, edges, groups and counts of a flow that are in the live tables."""
    groups = groups_of(store, flow)
    jobs: list[UUID] = []
    edges: list[Edge] = []
    after: UUID | None = None
    while page := store.flow_jobs(flow.id, tenant=flow.tenant, after=after, limit=PAGE):
        ids = [job.id for job in page]
        jobs += ids
        edges += edges_from(store.edges_of(ids), ids)
        after = ids[-1]
    counts = store.group_counts([flow.id, *(group.id for group in groups)])
    return FlowParts(tuple(jobs), tuple(edges), tuple(groups), tuple(counts))


def flow_document(store: Store, flow: FlowRow, *, tier: str, policy: str) -> ArchivedFlow:
    """The document of an ended flow.

    If an interrupted run has moved some of its jobs, the document that it wrote knows them.
    """
    parts = flow_parts(store, flow)
    for earlier in store.archived_flows([flow.id], tenant=ALL_TENANTS):
        if earlier.sound:
            parts = parts.joined(read_flow_parts(earlier))
    return archived_flow(flow, parts, tier=tier, policy=policy)


def drop_flow(store: Store, flow: FlowRow, *, limit: int = PAGE) -> tuple[int, bool]:
    """Delete an ended flow with at most ``limit`` of its jobs and without a copy.

    Returns the number of deleted jobs, and whether the flow itself is gone.
    """
    documents = store.flow_documents(flow.id, policy="", tier="", limit=limit)
    with store.transaction():
        gone = store.forget(documents)
        store.drop_blobs(gone)
        return len(gone), bool(store.drop_flows([flow.id]))
