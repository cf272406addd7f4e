"""Flow and batch pages: lists, the picture of a flow, its timeline, and actions."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.flows.api import Flows
from tidemill.client.flows.batches import Batches, BatchRun
from tidemill.client.flows.run import FlowNode, FlowRun
from tidemill.dashboard.flow_picture import BAD, picture_of
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.flow_timeline import TimelineRow, has_paused
from tidemill.domain.graph import FlowState, GroupCounts
from tidemill.errors import TidemillError
from tidemill.tasks.ambient import tenant_scope

pages = PageRoutes()

SHOWN = 50
"""Flows on a page of the list."""
ROWS = 200
"""Nodes in the table and rows of the timeline."""
NARROWEST = 0.4
"""Smallest width of a bar of the timeline, in percent."""
SCREEN = 20
"""Nodes of a table that fits a screen, where the order of the flow tells more than that of urgency."""
_ORDER = (
    "completed", *BAD, "cancelled", "skipped", "review_needed", "running", "claimed", "scheduled", "pending", "waiting",
)  # fmt: skip
"""Statuses in the order of the bar of outcomes: ended ones first."""
_URGENT = {status: rank for rank, status in enumerate((*BAD, "review_needed", "running", "claimed"))}


class FlowLine(NamedTuple):
    """One flow of the list."""

    run: FlowRun
    counts: GroupCounts
    fraction: float
    parts: list[tuple[str, int]]  #: jobs that ended and that failed


class BatchLine(NamedTuple):
    """One batch of the list."""

    run: BatchRun
    counts: GroupCounts
    fraction: float
    parts: list[tuple[str, int]]  #: jobs that ended and that failed


class TimelineBar(NamedTuple):
    """One row of the timeline, in percent of the whole."""

    name: str
    href: str
    state: str
    left: float
    width: float
    seconds: float


def _fraction(counts: GroupCounts) -> float:
    return 1.0 if not counts.total else 1 - counts.remaining / counts.total


def _parts(counts: GroupCounts) -> list[tuple[str, int]]:
    """Return the jobs that ended without a failure, and those that failed."""
    bad = min(counts.bad, counts.total - counts.remaining)
    return [("ended", counts.total - counts.remaining - bad), ("failed", bad)]


@pages.get("/flows", role=Role.VIEWER)
async def flows(request: PageRequest) -> Response:
    """List flows with their progress."""
    values = await request.read(_list, request)
    return request.render("flows.html", **values)


def _list(request: PageRequest) -> dict[str, Any]:
    query = request.query
    # Links of earlier versions have the word "state".
    status = query.get("status") or query.get("state") or None
    name = query.get("name") or None
    archived = bool(query.get("archived"))
    with tenant_scope(request.tenant):
        found = Flows(request.service.client).list(
            name=name,
            status=status,
            limit=SHOWN + 1,
            after=query.get("before") or None,
            archived=archived,
        )
    lines = [
        FlowLine(run, counts := run.counts(), _fraction(counts), _parts(counts)) for run in found[:SHOWN]
    ]
    return {
        "lines": lines,
        "chosen": status,
        "name": name,
        "archived": archived,
        "flow_statuses": [item.value for item in FlowState],
        "following": str(found[SHOWN - 1].id) if len(found) > SHOWN else None,
    }


@pages.get("/batches", role=Role.VIEWER)
async def batches(request: PageRequest) -> Response:
    """List batches with their progress."""
    values = await request.read(_list_batches, request)
    return request.render("batches.html", **values)


def _list_batches(request: PageRequest) -> dict[str, Any]:
    archived = bool(request.query.get("archived"))
    with tenant_scope(request.tenant):
        found = Batches(request.service.client).list(
            limit=SHOWN + 1, after=request.query.get("before") or None, archived=archived
        )
    lines = [
        BatchLine(run, counts := run.counts(), _fraction(counts), _parts(counts)) for run in found[:SHOWN]
    ]
    return {
        "lines": lines,
        "archived": archived,
        "following": str(found[SHOWN - 1].id) if len(found) > SHOWN else None,
    }


@pages.get("/flows/{id}", role=Role.VIEWER)
async def flow(request: PageRequest) -> Response:
    """Show one flow: its picture, its critical path, its timeline and its nodes."""
    values = await request.read(_look, request)
    return request.render("flow.html", **values)


def _found(request: PageRequest) -> FlowRun:
    with tenant_scope(request.tenant):
        return Flows(request.service.client).get(str(request.id()))


def _look(request: PageRequest) -> dict[str, Any]:
    run = _found(request)
    graph, nodes, rows = run.overview()
    counts = run.counts()
    path = graph.critical_path()
    names = {node.id: node for node in graph.nodes}
    longest = max((names[id] for id in path.ids), key=lambda node: node.seconds or 0, default=None)
    by_status = Counter(node.status for node in nodes)
    chosen = request.query.get("status")
    listed = _listed(nodes, chosen if chosen in by_status else None)
    return {
        "run": run,
        "graph": graph,
        "counts": counts,
        "fraction": _fraction(counts),
        "picture": picture_of(request, graph, set(path.ids)),
        "path": path,
        "path_names": [names[id].name for id in path.ids],
        "longest": longest,
        **_timeline(request, rows),
        "begun": sum(node.job.row.started_at is not None or has_paused(node.job.row) for node in nodes),
        "nodes": listed[:ROWS],
        "more": max(len(listed) - ROWS, 0),
        "bad": BAD,
        "total": len(nodes),
        "chosen": chosen if chosen in by_status else None,
        "by_status": [(status, by_status[status]) for status in _ORDER if by_status[status]],
        "skippable": sorted({node.name for node in nodes if node.status in (*BAD, "waiting", "pending")})[
            :100
        ],
        "has_failed": any(node.status in BAD for node in nodes),
        "archived": run.is_archived,
    }


def _listed(nodes: list[FlowNode], status: str | None) -> list[FlowNode]:
    """Return the nodes with a status; without one, those of a large flow that need attention come first."""
    if status is not None:
        return [node for node in nodes if node.status == status]
    if len(nodes) <= SCREEN:
        return nodes
    return sorted(nodes, key=lambda node: _URGENT.get(node.status, len(_URGENT)))


def _timeline(request: PageRequest, rows: list[TimelineRow]) -> dict[str, Any]:
    """The first jobs that began, as bars, with the times of the first start and the last end."""
    if not rows:
        return {"bars": []}
    first = rows[0].started_at
    last = max(row.started_at + timedelta(seconds=row.seconds) for row in rows)
    whole = max((last - first).total_seconds(), 0.001)
    bars = [
        TimelineBar(
            row.label,
            request.url(f"/jobs/{row.id}"),
            row.status,
            min(round(100 * (row.started_at - first).total_seconds() / whole, 2), 100 - NARROWEST),
            round(max(100 * row.seconds / whole, NARROWEST), 2),
            row.seconds,
        )
        for row in rows
    ]
    return {"bars": bars, "bars_from": first, "bars_to": last, "bars_length": last - first}


# Actions -----------------------------------------------------------------------------------------------------------------


async def _acted(request: PageRequest, verb: str, words: str, *args: Any, **more: Any) -> Response:
    run = await request.read(_found, request)
    try:
        await request.act(getattr(run, verb), *args, **more)
    except TidemillError as error:
        return request.back(f"/flows/{run.id}", str(error), good=False)
    return request.back(f"/flows/{run.id}", words)


@pages.post("/flows/{id}/retry", role=Role.OPERATOR)
async def retry(request: PageRequest) -> Response:
    """Run failed nodes again, and the nodes skipped after them."""
    return await _acted(request, "retry", "The failed nodes run again.", request.form.get("node") or None)


@pages.post("/flows/{id}/cancel", role=Role.OPERATOR)
async def cancel(request: PageRequest) -> Response:
    """Let no further node begin."""
    reason = request.form.get("reason") or None
    return await _acted(request, "cancel", "No further node begins; running ones are asked to stop.", reason)


@pages.post("/flows/{id}/skip", role=Role.OPERATOR)
async def skip(request: PageRequest) -> Response:
    """Count a node as succeeded."""
    node, text = request.form.get("node") or "", (request.form.get("result") or "").strip()
    try:
        result = json.loads(text) if text else None
    except ValueError:
        return request.back(f"/flows/{request.id()}", f"The result is not JSON: {text[:100]!r}", good=False)
    return await _acted(request, "skip", f"The flow continues without {node}.", node, result)
