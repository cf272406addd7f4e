"""The picture of a flow on its page: boxes with texts, connections, and its scale."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple
from uuid import UUID

from tidemill.client.flows.graph import FlowGraph, GraphEdge, GraphNode, label_of
from tidemill.dashboard.formats import span
from tidemill.dashboard.page_request import PageRequest
from tidemill.domain.flow_layout import HEIGHT, MOST_BOXES, WIDE, WIDTH, Box

BAD = ("failed", "dead_lettered", "timed_out")

SCALES = (10, 25, 50, 75, 100, 150, 200, 300)
"""The scales of the links, in percent. The script may choose others between the first and the last one."""


class Drawn(NamedTuple):
    """A box of the picture with its texts."""

    box: Box[UUID]
    state: str
    title: str
    words: str
    href: str | None
    fraction: float | None  #: of a map or folded box: how much has ended
    is_critical: bool


class Stroke(NamedTuple):
    """A connection of the picture."""

    path: str
    condition: str
    is_broken: bool
    is_critical: bool


class PictureScale(NamedTuple):
    """How large the picture is drawn, and the scales that the links choose."""

    percent: int
    fits: bool  #: as large as the page allows
    width: int
    height: int
    smaller: int | None
    larger: int | None


class Picture(NamedTuple):
    """The picture of a flow."""

    boxes: list[Drawn]
    strokes: list[Stroke]
    width: int
    height: int
    scale: PictureScale
    folds: str | None  #: the link that changes whether wide layers are folded: "off", "on", or none
    box_width: int = WIDTH
    box_height: int = HEIGHT


def picture_of(request: PageRequest, graph: FlowGraph, critical: set[UUID]) -> Picture:
    """Draw a flow as the address of the page asks: scaled, and with or without folds."""
    unfolded = request.query.get("folds") == "off"
    layout = graph.layout(folded=not unfolded)
    nodes = {node.id: node for node in graph.nodes}
    drawn = [_drawn(request, box, [nodes[id] for id in box.ids], critical) for box in layout.boxes]
    of_box = {id: box.ids[0] for box in layout.boxes for id in box.ids}
    edges: dict[tuple[UUID, UUID], list[GraphEdge]] = defaultdict(list)
    for edge in graph.edges:
        edges[of_box[edge.start], of_box[edge.end]].append(edge)
    strokes = []
    for curve in layout.curves:
        own = edges[curve.start, curve.end]
        is_critical = any(edge.start in critical and edge.end in critical for edge in own)
        is_broken = any(edge.broken for edge in own)
        strokes.append(Stroke(curve.path, own[0].condition, is_broken, is_critical))
    scale = scale_of(request.query.get("scale"), layout.width, layout.height)
    can_unfold = WIDE < len(graph.nodes) <= MOST_BOXES and any(box.is_folded for box in layout.boxes)
    folds = "on" if unfolded else "off" if can_unfold else None
    return Picture(drawn, strokes, layout.width, layout.height, scale, folds)


def scale_of(text: str | None, width: int, height: int) -> PictureScale:
    """Read the scale of the address; an invalid one counts as 100.

    >>> scale_of("50", 1001, 300)
    PictureScale(percent=50, fits=False, width=500, height=150, smaller=25, larger=75)
    >>> scale_of("fit", 1001, 300).fits, scale_of("9999", 10, 10).percent, scale_of("x", 10, 10).percent
    (True, 300, 100)
    """
    percent = int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else 100
    percent = min(max(percent, SCALES[0]), SCALES[-1])
    smaller = max((scale for scale in SCALES if scale < percent), default=None)
    larger = min((scale for scale in SCALES if scale > percent), default=None)
    return PictureScale(
        percent, text == "fit", width * percent // 100, height * percent // 100, smaller, larger
    )


def _drawn(request: PageRequest, box: Box[UUID], nodes: list[GraphNode], critical: set[UUID]) -> Drawn:
    is_critical = any(node.id in critical for node in nodes)
    if len(nodes) > 1:
        total, ended = sum(node.total for node in nodes), sum(node.ended for node in nodes)
        states = [node.status for node in nodes]
        state = next(
            (state for state in (*BAD, "running", "pending", "waiting") if state in states), states[0]
        )
        words = f"{ended:,} of {total:,} ended"
        # A page of the table lists the nodes of a folded box.
        href = request.here() + "#nodes"
        return Drawn(box, state, f"{len(nodes):,} nodes", words, href, ended / max(total, 1), is_critical)
    (node,) = nodes
    took = "" if node.seconds is None else f", {span(node.seconds)}"
    again = f", attempt {node.attempt}" if node.attempt > 1 else ""
    if node.is_map:
        words = label_of(node).partition(": ")[2] + took
        return Drawn(box, node.status, node.name, words, None, node.ended / max(node.total, 1), is_critical)
    href = request.url(f"/jobs/{node.id}")
    return Drawn(
        box, node.status, node.name, f"{node.status.replace('_', ' ')}{again}{took}", href, None, is_critical
    )
