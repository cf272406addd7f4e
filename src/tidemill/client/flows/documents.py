"""Flows and batches as JSON documents, for the HTTP API and the command line."""

from __future__ import annotations

from typing import Any

from tidemill.client.documents import instant
from tidemill.client.flows.batches import BatchRun
from tidemill.client.flows.graph import FlowGraph
from tidemill.client.flows.run import FlowNode, FlowRun
from tidemill.client.flows.why import NodeReason
from tidemill.domain.flow_timeline import TimelineRow
from tidemill.domain.graph import FlowRow


def _row(row: FlowRow) -> dict[str, Any]:
    return {
        "id": str(row.id),
        "name": row.name,
        "key": row.key,
        "tenant": row.tenant,
        "status": row.state.value,
        "created_at": instant(row.created_at),
        "created_by": row.created_by,
        "ended_at": instant(row.ended_at),
        "expires_at": instant(row.expires_at),
        "cancel_reason": row.cancel_reason,
        "correlation_id": row.correlation_id,
        "archived_at": instant(row.archived_at),
        "tier": row.tier,
    }


def flow_document(run: FlowRun) -> dict[str, Any]:
    """A flow as of the last look, without its nodes."""
    rules = run.row.rules
    return {
        **_row(run.row),
        "on_failure": rules.get("on_failure", "skip"),
        "round": run.row.round,
        "stops": run.row.stops,
    }


def flow_with_counts(run: FlowRun) -> dict[str, Any]:
    """A flow with the numbers of its jobs."""
    counts = run.counts()
    return {
        **flow_document(run),
        "total": counts.total,
        "pending": counts.remaining,
        "failed": counts.bad,
        "progress": 1.0 if not counts.total else 1 - counts.remaining / counts.total,
    }


def node_document(node: FlowNode) -> dict[str, Any]:
    """One job of a flow."""
    row = node.job.row
    return {
        "node": node.name,
        "position": node.position,
        "id": str(row.id),
        "task": row.task,
        "status": node.status,
        "attempt": row.attempt,
        "reason": row.reason,
        "started_at": instant(row.started_at),
        "finished_at": instant(row.finished_at),
    }


def node_reason_document(reason: NodeReason) -> dict[str, Any]:
    """One reason why a flow has not ended."""
    return {**reason._asdict(), "id": None if reason.id is None else str(reason.id)}


def timeline_document(row: TimelineRow) -> dict[str, Any]:
    """One row of a timeline."""
    return {
        "node": row.node,
        "position": row.position,
        "id": str(row.id),
        "status": row.status,
        "attempt": row.attempt,
        "started_at": instant(row.started_at),
        "finished_at": instant(row.finished_at),
        "seconds": row.seconds,
    }


def graph_document(graph: FlowGraph) -> dict[str, Any]:
    """The graph of a flow."""
    path = graph.critical_path()
    return {
        "name": graph.name,
        "status": graph.status,
        "nodes": [
            {
                "id": str(node.id),
                "name": node.name,
                "task": node.task,
                "status": node.status,
                "total": node.total,
                "counts": node.counts,
                "attempt": node.attempt,
                "seconds": node.seconds,
                "reason": node.reason,
                "map": node.is_map,
            }
            for node in graph.nodes
        ],
        "edges": [
            {"from": str(edge.start), "to": str(edge.end), "condition": edge.condition, "broken": edge.broken}
            for edge in graph.edges
        ],
        "critical_path": {"nodes": [str(id) for id in path.ids], "seconds": path.seconds},
    }


def batch_document(batch: BatchRun) -> dict[str, Any]:
    """A batch with the numbers of its jobs."""
    counts = batch.counts()
    return {
        **_row(batch.row),
        "description": batch.description,
        "total": counts.total,
        "pending": counts.remaining,
        "failed": counts.bad,
        "progress": 1.0 if not counts.total else 1 - counts.remaining / counts.total,
    }
