"""The graph of a flow with the statuses of its nodes, and its text forms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import islice
from uuid import UUID

from tidemill.archive.flow_reads import FlowReads
from tidemill.archive.flows import groups_of
from tidemill.domain.flow_layout import WIDE, Box, CriticalPath, Curve, Layout, critical_path, lay_out
from tidemill.domain.flow_states import node_label
from tidemill.domain.flow_timeline import TimelineRow, has_paused, last_starts, timeline_of
from tidemill.domain.graph import Edge, EdgeCondition, FlowRow, meets, outcome_of
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import Store

_CHUNK = 500
_MARKS = {
    "completed": "✓", "running": "▶", "claimed": "▶", "failed": "✗", "timed_out": "✗", "dead_lettered": "✗",
    "skipped": "∅", "cancelled": "∅",
}  # fmt: skip
_ORDER = ("failed", "dead_lettered", "timed_out", "running", "claimed", "scheduled", "pending", "waiting")

_URGENT = ("failed", "dead_lettered", "timed_out", "review_needed", "running", "claimed")
_MOST_APART = 12
"""Urgent nodes with boxes of their own in a folded picture."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box of the graph: one job, or all jobs of a map."""

    id: UUID
    name: str
    task: str
    status: str  #: of a map, the status that matters most
    total: int = 1
    counts: dict[str, int] = field(default_factory=dict)  #: jobs by status
    attempt: int = 0
    seconds: float | None = None  #: from the first start to the last end, or until now
    reason: str | None = None
    is_map: bool = False

    @property
    def ended(self) -> int:
        """How many of its jobs have ended."""
        done = {state.value for state in ENDED} | {"skipped"}
        return sum(number for state, number in self.counts.items() if state in done)


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A connection between two boxes. It is broken if the need ended in another way than wanted."""

    start: UUID
    end: UUID
    condition: str
    broken: bool = False


@dataclass(frozen=True)
class FlowGraph:
    """The boxes and connections of a flow."""

    name: str
    status: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]

    @property
    def needs(self) -> dict[UUID, list[UUID]]:
        """The needs of each box."""
        found: dict[UUID, list[UUID]] = {node.id: [] for node in self.nodes}
        for edge in self.edges:
            found[edge.end].append(edge.start)
        return found

    def critical_path(self) -> CriticalPath[UUID]:
        """The chain of nodes that took the longest so far."""
        seconds = {number: node.seconds or 0.0 for number, node in enumerate(self.nodes)}
        path = critical_path(range(len(self.nodes)), self._numbered_needs, seconds)
        return CriticalPath([self.nodes[number].id for number in path.ids], path.seconds)

    def layout(self, *, folded: bool = False) -> Layout[UUID]:
        """Positions for a picture. If it is folded, a wide layer is one box, and some of its urgent nodes have their own."""
        urgent = [number for number, node in enumerate(self.nodes) if node.status in _URGENT]
        urgent.sort(key=lambda number: _URGENT.index(self.nodes[number].status))
        made = lay_out(
            range(len(self.nodes)),
            self._numbered_needs,
            wide=WIDE if folded else None,
            apart=urgent[:_MOST_APART],
        )
        ids = [node.id for node in self.nodes]
        boxes = [Box(tuple(ids[number] for number in box.ids), *box[1:]) for box in made.boxes]
        curves = [Curve(ids[curve.start], ids[curve.end], curve.path) for curve in made.curves]
        return Layout(boxes, curves, made.width, made.height)

    @cached_property
    def _numbered_needs(self) -> dict[int, list[int]]:
        """The boxes that each box waits for, by numbers: the hash of an id costs many times as much."""
        numbers = {node.id: number for number, node in enumerate(self.nodes)}
        found: dict[int, list[int]] = {number: [] for number in numbers.values()}
        for edge in self.edges:
            found[numbers[edge.end]].append(numbers[edge.start])
        return found

    def to_mermaid(self) -> str:
        """The graph in the language of Mermaid."""
        names = {node.id: f"n{number}" for number, node in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        lines += [f'  {names[node.id]}["{_quoted(label_of(node))}"]:::{node.status}' for node in self.nodes]
        for edge in self.edges:
            word = "" if edge.condition == "success" else f"|{edge.condition.replace('_', ' ')}|"
            lines.append(f"  {names[edge.start]} {'-.->' if edge.broken else '-->'}{word} {names[edge.end]}")
        return "\n".join([*lines, *_CLASSES]) + "\n"

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        names = {node.id: f"n{number}" for number, node in enumerate(self.nodes)}
        lines = [f'digraph "{_quoted(self.name)}" {{', "  rankdir=LR;", "  node [shape=box, style=rounded];"]
        for node in self.nodes:
            style = ', style="rounded,dashed"' if node.status in ("skipped", "cancelled") else ""
            lines.append(f'  {names[node.id]} [label="{_quoted(label_of(node))}"{style}];')
        for edge in self.edges:
            label = "" if edge.condition == "success" else f' [label="{edge.condition.replace("_", " ")}"]'
            lines.append(f"  {names[edge.start]} -> {names[edge.end]}{label};")
        return "\n".join([*lines, "}"]) + "\n"

    def to_text(self) -> str:
        """The nodes in the order of their needs, one per line, for a terminal."""
        names = {node.id: node.name for node in self.nodes}
        needs = self.needs
        layers = {id: box.layer for box in self.layout().boxes for id in box.ids}
        lines = []
        for node in sorted(self.nodes, key=lambda node: layers[node.id]):
            after = ", ".join(names[id] for id in needs[node.id][:5])
            more = f" and {len(needs[node.id]) - 5} more" if len(needs[node.id]) > 5 else ""
            lines.append(
                f"{'  ' * min(layers[node.id], 20)}{_MARKS.get(node.status, '·')} {label_of(node)}"
                + (f"  ← {after}{more}" if after else "")
            )
        return "\n".join(lines) + "\n"


_CLASSES = (
    "  classDef completed fill:#dff5e3,stroke:#2e7d32",
    "  classDef failed fill:#fde2e1,stroke:#c62828",
    "  classDef dead_lettered fill:#fde2e1,stroke:#c62828",
    "  classDef running fill:#e3edfd,stroke:#1565c0",
    "  classDef skipped stroke-dasharray: 4 3",
)


def label_of(node: GraphNode) -> str:
    """A box as people read it: ``load: 3 of 10, running``."""
    if node.is_map:
        failed = sum(node.counts.get(state, 0) for state in ("failed", "dead_lettered", "timed_out"))
        return f"{node.name}: {node.ended:,} of {node.total:,}" + (f", {failed:,} failed" if failed else "")
    return f"{node.name}: {node.status.replace('_', ' ')}"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")


def graph_of(store: FlowReads, flow: FlowRow, jobs: Sequence[JobRow], now: datetime) -> FlowGraph:
    """The graph of a flow from its jobs, groups and edges."""
    groups = {group.id: group for group in groups_of(store, flow)}
    maps = {id for id, group in groups.items() if group.rules.get("inner") == "map"}
    members: dict[UUID, list[JobRow]] = {id: [] for id in maps}
    boxes: dict[UUID, GraphNode] = {}
    order: list[UUID] = []
    inside: dict[UUID, list[UUID]] = {}  # boxes and groups by the group that counts them
    for job in jobs:
        group = job.details.group_id
        if group in maps:
            if not members[group]:
                order.append(group)
            members[group].append(job)
        else:
            boxes[job.id] = _job_box(job, now)
            order.append(job.id)
            inside.setdefault(group or flow.id, []).append(job.id)
    for id, rows in members.items():
        boxes[id] = _map_box(groups[id], rows, now)
        if not rows:
            order.append(id)
    for id, row in groups.items():
        inside.setdefault(row.group_id or flow.id, []).append(id)
    of_box = {job.id: id for id, rows in members.items() for job in rows}
    readers = [job.id for job in jobs if job.id not in of_box] + [
        rows[0].id for rows in members.values() if rows
    ]
    rows_by_id = {job.id: job for job in jobs}
    edges = _edges(_read_edges(store, readers), of_box, boxes, groups, inside, rows_by_id)
    return FlowGraph(flow.name, flow.state.value, [boxes[id] for id in order], edges)


def _read_edges(store: FlowReads, ids: Sequence[UUID]) -> list[Edge]:
    found: list[Edge] = []
    for at in range(0, len(ids), _CHUNK):
        waiting = set(ids[at : at + _CHUNK])
        found += [edge for edge in store.edges_of(waiting) if edge.job_id in waiting]
    return found


def _edges(
    stored: Iterable[Edge],
    of_box: dict[UUID, UUID],
    boxes: dict[UUID, GraphNode],
    groups: dict[UUID, FlowRow],
    inside: dict[UUID, list[UUID]],
    jobs: dict[UUID, JobRow],
) -> list[GraphEdge]:
    """The connections between boxes. A group without a box is represented by its last boxes."""
    found: dict[tuple[UUID, UUID], GraphEdge] = {}
    grouped: list[tuple[Edge, UUID]] = []
    # Few look-ups for each edge, because the hash of an id costs more than the rest.
    for edge in stored:
        end, start = edge.job_id, edge.needs_id
        job = jobs.get(start)
        if of_box:
            end, start = of_box.get(end, end), of_box.get(start, start)
        if end not in boxes:
            continue
        if job is not None or start in boxes:
            broken = _broken(edge, job, None if job is not None else groups.get(start))
            found[start, end] = GraphEdge(start, end, edge.condition.value, broken)
        elif start in groups:
            grouped.append((edge, end))
    if not grouped:
        return list(found.values())
    used = {start for start, _ in found}
    for edge, end in grouped:
        if (
            edge.condition is EdgeCondition.FIRST_FAILURE
            and groups[edge.needs_id].rules.get("inner") != "body"
        ):
            continue
        leaves = [id for id in _boxes_in(edge.needs_id, inside, boxes) if id not in used and id != end]
        for start in leaves:
            found.setdefault((start, end), GraphEdge(start, end, edge.condition.value))
    return list(found.values())


def _boxes_in(group: UUID, inside: dict[UUID, list[UUID]], boxes: dict[UUID, GraphNode]) -> list[UUID]:
    found: list[UUID] = []
    for id in inside.get(group, ()):
        found += [id] if id in boxes else _boxes_in(id, inside, boxes)
    return found


def _broken(edge: Edge, job: JobRow | None, group: FlowRow | None) -> bool:
    if edge.condition is EdgeCondition.FIRST_FAILURE:
        return False
    if job is not None:
        return job.state in ENDED and not meets(edge.condition, outcome_of(job.state))
    return (
        group is not None
        and group.ended_at is not None
        and not meets(edge.condition, outcome_of(group.state))
    )


def _job_box(job: JobRow, now: datetime) -> GraphNode:
    state = node_label(job)
    return GraphNode(
        job.id,
        job.details.node or job.task,
        job.task,
        state,
        counts={state: 1},
        attempt=job.attempt,
        seconds=_seconds([job], now),
        reason=job.reason,
    )


def _map_box(group: FlowRow, jobs: Sequence[JobRow], now: datetime) -> GraphNode:
    items = [job for job in jobs if job.details.position is not None]
    counts = dict(Counter(node_label(job) for job in items or jobs))
    state = next((state for state in _ORDER if state in counts), None)
    if state is None:
        state = "skipped" if counts and set(counts) <= {"skipped", "cancelled"} else "completed"
    task = items[0].task if items else (jobs[0].task if jobs else group.name)
    return GraphNode(
        group.id,
        group.name,
        task,
        state,
        total=len(items),
        counts=counts if items else {},
        attempt=max((job.attempt for job in jobs), default=0),
        seconds=_seconds(jobs, now),
        reason=next((job.reason for job in jobs if job.reason and job.state in ENDED), None),
        is_map=True,
    )


def _seconds(jobs: Iterable[JobRow], now: datetime) -> float | None:
    began = [job for job in jobs if job.started_at is not None]
    if not began:
        return None
    first = min(job.started_at for job in began if job.started_at is not None)
    ends = [job.finished_at or (now if job.state is JobState.RUNNING else first) for job in began]
    return max((max(ends) - first).total_seconds(), 0.0)


def read_timeline(
    store: Store, jobs: Sequence[JobRow], tenant: str, now: datetime, limit: int
) -> list[TimelineRow]:
    """The jobs that have begun; the executions say when those began that wait for a review or a retry."""
    paused = list(islice((job.id for job in jobs if has_paused(job)), limit))
    starts = last_starts(store.executions(paused, tenant=tenant)) if paused else {}
    return timeline_of(jobs, now, limit, starts)
