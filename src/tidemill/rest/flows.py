"""Flows: list, graph, nodes, start, retry, skip and cancel."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.flows.api import Flows
from tidemill.client.flows.builder import Flow, Node
from tidemill.client.flows.documents import (
    flow_document,
    flow_with_counts,
    graph_document,
    node_document,
    node_reason_document,
    timeline_document,
)
from tidemill.client.flows.run import FlowNode, FlowRun
from tidemill.client.flows.why import NodeReason
from tidemill.domain.access import Role
from tidemill.domain.masks import HIDDEN
from tidemill.errors import BadFilter, BadFlow
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, Name, QueryModel, Words
from tidemill.rest.routes import Routes
from tidemill.rest.signals import SentDocument, SignalBody
from tidemill.tasks.ambient import tenant_scope

routes = Routes("flows")

Status = Literal["running", "completed", "failed", "cancelled"]


class FlowQuery(QueryModel):
    """Filter and page of flows."""

    name: Name | None = None
    key: str | None = Field(None, max_length=300)
    status: Status | None = None
    archived: bool = Field(False, description="Include archived flows.")
    limit: Limit = 50
    cursor: Cursor = None


class FlowDocument(Document):
    """A flow."""

    id: str
    name: str = Field(examples=["import"])
    key: str | None
    tenant: str
    status: Status
    created_at: Instant
    created_by: str | None
    ended_at: Instant | None
    expires_at: Instant | None
    cancel_reason: str | None
    correlation_id: str | None
    archived_at: Instant | None
    tier: str | None = Field(description="The tier of an archived flow.")
    on_failure: Literal["skip", "stop", "hold"]
    round: int = Field(description="1, and one more after each retry.")
    stops: bool


class FlowCountsDocument(FlowDocument):
    """A flow with the numbers of its jobs."""

    total: int
    pending: int
    failed: int
    progress: float


class NodeDocument(Document):
    """One job of a flow."""

    node: str
    position: int | None
    id: str
    task: str
    status: str = Field(description="The status of the job, or `skipped`.")
    attempt: int
    reason: str | None
    started_at: Instant | None
    finished_at: Instant | None


class TimelineDocument(Document):
    """One job of a timeline: its last execution."""

    node: str
    position: int | None
    id: str
    status: str
    attempt: int
    started_at: Instant
    finished_at: Instant | None
    seconds: float = Field(description="How long it took, or has taken so far.")


class TimelineQuery(QueryModel):
    """Length of a timeline."""

    limit: Limit = 200


class GraphDocument(Document):
    """The boxes and connections of a flow."""

    name: str
    status: Status
    nodes: list[dict[str, Any]]
    edges: list[dict[str, Any]]
    critical_path: dict[str, Any]


class NodeQuery(QueryModel):
    """Page of nodes."""

    limit: Limit = 100
    cursor: int = Field(0, ge=0, le=10_000_000, description="The `next` of the previous page.")


class NodeReasonDocument(Document):
    """Why a node, or without one the flow, has not ended."""

    code: str = Field(examples=["waits_for_signal"])
    text: str = Field(examples=["It waits for a signal approved."])
    node: str | None
    id: str | None = Field(description="The id of the node's job.")


class WhyFlowQuery(QueryModel):
    """The node to explain."""

    node: str | None = Field(None, max_length=300, description="One job of a map is `load [3]`.")


class NodeBody(BodyModel):
    """A node of a new flow. `{"$ref": ["parse", "rows"]}` in its arguments is a result of another node."""

    name: Name
    task: Name
    args: dict[str, Any] = Field(default_factory=dict)
    after: list[Name] = Field(default_factory=list)
    on: Literal["success", "failure", "end"] = "success"
    may_fail: bool = False


class FlowBody(BodyModel):
    """A new flow, by names of tasks."""

    name: Name
    key: str | None = Field(None, min_length=1, max_length=300)
    callback_url: str | None = Field(
        None, max_length=2_000, description="Receives a signed webhook when the flow has ended."
    )
    on_failure: Literal["skip", "stop", "hold"] = "skip"
    nodes: list[NodeBody] = Field(min_length=1, max_length=10_000)


class RetryBody(BodyModel):
    """Where to begin."""

    node: Name | None = None
    downstream: bool = False


class SkipBody(BodyModel):
    """The node that counts as succeeded, and its result."""

    node: Name
    result: Any = None


class CancelFlowBody(BodyModel):
    """Why a flow is cancelled."""

    reason: Words | None = None
    hard: bool = Field(False, description="Drop the nodes that run at the end, too.")


async def _flow(request: ApiRequest) -> FlowRun:
    def read() -> FlowRun:
        with tenant_scope(request.tenant):
            return Flows(request.service.client).get(str(request.id()))

    return await request.read(read)


def after_of(cursor: str | None) -> UUID | None:
    """Return the id that the cursor of a list of flows or batches names."""
    if cursor is None:
        return None
    try:
        return UUID(cursor)
    except ValueError:
        raise BadFilter(f"{cursor[:100]!r} is not a cursor of this list", field="cursor") from None


@routes.get("/api/flows", role=Role.VIEWER, query=FlowQuery, answer=Items[FlowDocument])
async def list_flows(request: ApiRequest) -> Response:
    """List flows, the newest first."""
    query: FlowQuery = request.query

    def read() -> list[FlowRun]:
        with tenant_scope(request.tenant):
            return Flows(request.service.client).list(
                name=query.name,
                key=query.key,
                status=query.status,
                limit=query.limit,
                after=after_of(query.cursor),
                archived=query.archived,
            )

    runs = await request.read(read)
    following = str(runs[-1].id) if len(runs) == query.limit else None
    return request.page([flow_document(run) for run in runs], following)


@routes.post("/api/flows", role=Role.OPERATOR, body=FlowBody, answer=FlowDocument, status=201)
async def start_flow(request: ApiRequest) -> Response:
    """Start a flow of named tasks; with a key that was used before, answer the first one."""
    body: FlowBody = request.body

    def act() -> FlowRun:
        with tenant_scope(request.home):
            return _built(request, body).start()

    run = await request.act(act)
    return request.reply(flow_document(run), headers={"Location": request.where(f"/api/flows/{run.id}")})


def _built(request: ApiRequest, body: FlowBody) -> Flow:
    flow = Flow(request.service.client, body.name, body.key, body.on_failure, callback_url=body.callback_url)
    nodes: dict[str, Node[Any]] = {}
    for given in body.nodes:
        task = request.app.bound_task(given.task)
        args = {name: _with_references(value, nodes, given.name) for name, value in given.args.items()}
        node = flow.add(task, **args).named(given.name)
        for name in given.after:
            if name not in nodes:
                raise BadFlow(f"node {given.name!r} waits for {name!r}, which is not listed before it")
            node.after(nodes[name], on=given.on)
        if given.may_fail:
            node.may_fail()
        nodes[given.name] = node
    return flow


def _with_references(value: Any, nodes: dict[str, Node[Any]], node: str) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$ref"} and isinstance(value["$ref"], list) and value["$ref"]:
            name, *path = value["$ref"]
            if not isinstance(name, str) or name not in nodes:
                raise BadFlow(f"node {node!r} takes the result of {name!r}, which is not listed before it")
            found: Any = nodes[name].result
            for part in path:
                found = found[part]
            return found
        return {key: _with_references(item, nodes, node) for key, item in value.items()}
    return [_with_references(item, nodes, node) for item in value] if isinstance(value, list) else value


@routes.get("/api/flows/{id}", role=Role.VIEWER, answer=FlowCountsDocument)
async def get_flow(request: ApiRequest) -> Response:
    """Show a flow with the numbers of its jobs."""
    run = await _flow(request)
    return request.reply(await request.read(flow_with_counts, run))


@routes.get("/api/flows/{id}/graph", role=Role.VIEWER, answer=GraphDocument)
async def get_flow_graph(request: ApiRequest) -> Response:
    """Show the graph of a flow with the statuses of its nodes and the critical path."""
    run = await _flow(request)
    document = graph_document(await request.read(run.graph))
    document["nodes"] = request.failure_rows(document["nodes"])
    return request.reply(document)


@routes.get("/api/flows/{id}/nodes", role=Role.VIEWER, query=NodeQuery, answer=Items[NodeDocument])
async def list_flow_nodes(request: ApiRequest) -> Response:
    """List the jobs of a flow, in the order in which they were added."""
    run = await _flow(request)
    query: NodeQuery = request.query
    nodes: list[FlowNode] = (await request.read(run.nodes))[query.cursor : query.cursor + query.limit + 1]
    following = str(query.cursor + query.limit) if len(nodes) > query.limit else None
    return request.page(request.failure_rows(map(node_document, nodes[: query.limit])), following)


@routes.get("/api/flows/{id}/timeline", role=Role.VIEWER, query=TimelineQuery, answer=Items[TimelineDocument])
async def get_flow_timeline(request: ApiRequest) -> Response:
    """List the jobs of a flow that have begun, in the order of their starts."""
    run = await _flow(request)
    rows = await request.read(run.timeline, request.query.limit)
    return request.page([timeline_document(row) for row in rows], None)


@routes.get("/api/flows/{id}/why", role=Role.VIEWER, query=WhyFlowQuery, answer=Items[NodeReasonDocument])
async def explain_flow(request: ApiRequest) -> Response:
    """Explain a flow by the nodes that the others wait for, by the nodes that failed, or by one node."""
    run = await _flow(request)
    reasons: list[NodeReason] = await request.read(run.why, request.query.node)
    if request.hides_arguments:
        # The reason of a node may contain the message of an error.
        reasons = [reason if reason.node is None else reason._replace(text=HIDDEN) for reason in reasons]
    return request.page([request.masked_names(node_reason_document(reason)) for reason in reasons])


@routes.post(
    "/api/flows/{id}/nodes/{node:path}/signals",
    role=Role.OPERATOR,
    body=SignalBody,
    answer=SentDocument,
    status=201,
)
async def signal_flow_node(request: ApiRequest) -> Response:
    """Send a signal to the job of a node; one job of a map is `load [3]`. 200 means that its key was accepted before."""
    run = await _flow(request)
    body: SignalBody = request.body
    accepted = await request.act(run.signal, request.path["node"], body.name, body.payload, key=body.key)
    return request.reply({"accepted": accepted}, 201 if accepted else 200)


@routes.post(
    "/api/flows/{id}/retry", role=Role.OPERATOR, body=RetryBody, body_optional=True, answer=FlowDocument
)
async def retry_flow(request: ApiRequest) -> Response:
    """Run failed nodes again, and the nodes skipped after them."""
    run = await _flow(request)
    await request.act(run.retry, request.body.node, downstream=request.body.downstream)
    return request.reply(flow_document(run))


@routes.post("/api/flows/{id}/skip", role=Role.OPERATOR, body=SkipBody, answer=FlowDocument)
async def skip_flow_node(request: ApiRequest) -> Response:
    """Count a node as succeeded without running it."""
    run = await _flow(request)
    await request.act(run.skip, request.body.node, request.body.result)
    return request.reply(flow_document(run))


@routes.post(
    "/api/flows/{id}/cancel", role=Role.OPERATOR, body=CancelFlowBody, body_optional=True, answer=FlowDocument
)
async def cancel_flow(request: ApiRequest) -> Response:
    """Let no further node begin, and ask running ones to stop."""
    run = await _flow(request)
    await request.act(run.cancel, request.body.reason, hard=request.body.hard)
    return request.reply(flow_document(run))
