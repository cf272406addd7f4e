"""Archived flows: the document of a flow whose jobs have left the live tables.

The jobs of an archived flow are ordinary archived jobs, wherever their policy puts them. The document lists their ids, the edges
and the groups, so that the flow can be found and drawn without the live tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill.domain.graph import Edge, EdgeCondition, FlowRow, FlowState, GroupCounts, GroupKind
from tidemill.domain.retention import fingerprint

ARCHIVED_KINDS = frozenset({GroupKind.FLOW, GroupKind.BATCH})
"""The groups that leave as one. A map outside of them has no document: its jobs leave one by one."""


@dataclass(frozen=True, slots=True)
class ArchivedFlow:
    """The stored document of a flow or batch. The other fields serve to find it, and ``summary`` to list it."""

    id: UUID
    tenant: str
    kind: GroupKind
    name: str
    key: str | None
    state: FlowState
    created_at: datetime
    ended_at: datetime
    tier: str
    policy: str
    summary: str
    document: str  #: empty in lists
    fingerprint: str
    archived_at: datetime | None = None

    @property
    def sound(self) -> bool:
        """Whether the document matches its fingerprint."""
        return fingerprint(self.document) == self.fingerprint


@dataclass(frozen=True, slots=True)
class FlowParts:
    """The parts of a flow besides its record: the ids of its jobs, its edges, its groups, and the numbers of their members."""

    jobs: tuple[UUID, ...] = ()
    edges: tuple[Edge, ...] = ()
    groups: tuple[FlowRow, ...] = ()
    counts: tuple[GroupCounts, ...] = ()

    def joined(self, earlier: FlowParts) -> FlowParts:
        """These parts with those that an interrupted archive run has moved before."""
        edges = {(edge.job_id, edge.needs_id): edge for edge in (*earlier.edges, *self.edges)}
        groups = {group.id: group for group in (*earlier.groups, *self.groups)}
        counts = {count.id: count for count in (*earlier.counts, *self.counts)}
        jobs = sorted({*earlier.jobs, *self.jobs}, key=lambda id: id.int)
        return FlowParts(tuple(jobs), tuple(edges.values()), tuple(groups.values()), tuple(counts.values()))


def archived_flow(row: FlowRow, parts: FlowParts, *, tier: str, policy: str) -> ArchivedFlow:
    """The document of an ended flow."""
    if row.ended_at is None:
        raise ValueError(f"flow {row.id} has not ended")
    places: dict[UUID, int] = {}
    edges = [
        [
            places.setdefault(edge.job_id, len(places)),
            places.setdefault(edge.needs_id, len(places)),
            edge.condition.value,
            edge.shard,
        ]
        for edge in parts.edges
    ]
    body = {
        "format": 1,
        "jobs": [id.hex for id in parts.jobs],
        "ids": [id.hex for id in places],
        "edges": edges,
        "groups": [_row_data(group) for group in parts.groups],
        "counts": [[count.id.hex, *count[1:]] for count in parts.counts],
    }
    text = _dump(body)
    own = next((count for count in parts.counts if count.id == row.id), GroupCounts(row.id, 0, 0, 0))
    inner = [count for count in parts.counts if count.id != row.id]
    total = own.total + sum(count.total for count in inner) - len(inner)
    bad = own.bad + sum(count.bad for count in inner)
    bad -= sum(group.state is FlowState.FAILED for group in parts.groups)
    summary = _dump({"row": _row_data(row), "total": max(total, 0), "bad": max(bad, 0)})
    return ArchivedFlow(
        id=row.id,
        tenant=row.tenant,
        kind=row.kind,
        name=row.name,
        key=row.key,
        state=row.state,
        created_at=row.created_at,
        ended_at=row.ended_at,
        tier=tier,
        policy=policy,
        summary=summary,
        document=text,
        fingerprint=fingerprint(text),
    )


def read_flow_row(flow: ArchivedFlow) -> FlowRow:
    """The record of an archived flow, with its tier and the time of its archiving."""
    row = _read_row(json.loads(flow.summary)["row"])
    return replace(row, archived_at=flow.archived_at, tier=flow.tier)


def read_flow_counts(flow: ArchivedFlow) -> GroupCounts:
    """The numbers of the jobs of an archived flow and of the groups in it."""
    data = json.loads(flow.summary)
    return GroupCounts(flow.id, data["total"], 0, data["bad"])


def read_flow_parts(flow: ArchivedFlow) -> FlowParts:
    """The jobs, edges, groups and counts in the document of an archived flow."""
    data = json.loads(flow.document)
    ids = [UUID(id) for id in data["ids"]]
    return FlowParts(
        tuple(UUID(id) for id in data["jobs"]),
        tuple(
            Edge(ids[job], ids[need], EdgeCondition(condition), shard)
            for job, need, condition, shard in data["edges"]
        ),
        tuple(_read_row(group) for group in data["groups"]),
        tuple(GroupCounts(UUID(id), total, remaining, bad) for id, total, remaining, bad in data["counts"]),
    )


_INSTANTS = ("created_at", "expires_at", "ended_at")
_IDS = ("id", "group_id")
_ROW_FIELDS = tuple(field.name for field in fields(FlowRow) if field.name not in ("archived_at", "tier"))


def _row_data(row: FlowRow) -> dict[str, object]:
    data: dict[str, object] = {name: getattr(row, name) for name in _ROW_FIELDS}
    data |= {name: None if data[name] is None else str(data[name]) for name in _IDS}
    data |= {name: _instant(getattr(row, name)) for name in _INSTANTS}
    return data | {"rules": dict(row.rules)}


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="microseconds")


def _read_row(data: Mapping[str, Any]) -> FlowRow:
    values = {name: data[name] for name in _ROW_FIELDS if name in data}
    values |= {name: None if data[name] is None else UUID(data[name]) for name in _IDS}
    values |= {name: None if data[name] is None else datetime.fromisoformat(data[name]) for name in _INSTANTS}
    return FlowRow(**values | {"kind": GroupKind(data["kind"]), "state": FlowState(data["state"])})


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def edges_from(edges: Iterable[Edge], jobs: Sequence[UUID]) -> tuple[Edge, ...]:
    """The edges whose waiting job is one of these: an edge from outside belongs to another flow."""
    ours = set(jobs)
    return tuple(edge for edge in edges if edge.job_id in ours)
