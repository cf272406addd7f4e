"""The builder of flows: nodes, what they wait for, and the start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Self, TypeVar, cast
from uuid import UUID

from tidemill.client.access import who
from tidemill.client.enqueue.bound_task import BoundTask, TaskCall
from tidemill.client.flows.node_jobs import NodeJobs, ids_of, limited, map_jobs, missing_allowed, node_jobs
from tidemill.client.flows.run import FlowRun
from tidemill.client.flows.start import astart, prepared, start
from tidemill.domain.bounds import check_key, check_name
from tidemill.domain.callbacks import callback_rows
from tidemill.domain.conditions import as_condition
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.fan_out import STOP_FLOW
from tidemill.domain.flow_plan import (
    Draft,
    DraftNode,
    FailureMode,
    FlowPlan,
    NodeKind,
    NodeRole,
    plan,
    unique_name,
)
from tidemill.domain.graph import EdgeCondition
from tidemill.domain.job import NewJob
from tidemill.domain.large_values import SpilledText
from tidemill.domain.limits import Rule
from tidemill.domain.outgoing_addresses import read_url
from tidemill.domain.references import Reference, StoredReference, name_of, stored_of
from tidemill.errors import BadFlow, UsageError
from tidemill.ids import new_id
from tidemill.tasks.ambient import current_job, current_tenant
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client

P = ParamSpec("P")
R = TypeVar("R")

End = Literal["success", "failure", "end"]
AT_ONCE = "flow.at_once"
"""The rule of maps with a limit: one rule per number, and one key per map."""

_CONDITIONS = {
    "success": EdgeCondition.SUCCESS,
    "failure": EdgeCondition.FAILURE,
    "end": EdgeCondition.END,
}


class Node(Generic[R]):
    """One node of a flow: a job, the jobs of a map, or an included flow."""

    def __init__(self, flow: Flow, drafted: DraftNode, declared: Declared | None, made: NodeJobs) -> None:
        self._flow, self._drafted, self._declared, self._made = flow, drafted, declared, made
        self._explicit = set[UUID]()
        for reference in made.inputs:
            self._take(reference)

    @property
    def name(self) -> str:
        """The name of the node in its flow."""
        return self._drafted.name

    @property
    def id(self) -> UUID:
        """The id of the node's job, or of its group of jobs."""
        return self._drafted.id

    @property
    def result(self) -> R:
        """The future result, to give to other nodes and to conditions. Type checkers see the type of the result."""
        node = self._drafted
        if node.kind is NodeKind.MAP:
            raise UsageError(f"node {node.name!r} has one result per item; use .results")
        if node.flow is not None:
            if node.flow.returns is None:
                raise UsageError(
                    f"node {node.name!r}: the included flow {node.flow.name!r} returns nothing; call returns(…) on it"
                )
            return cast(R, Reference(node.flow.returns, f"{node.name}.result"))
        return cast(R, Reference(StoredReference(node.id), f"{node.name}.result"))

    def named(self, name: str) -> Self:
        """Give the node a name, by default that of its task."""
        check_key("the name of a node", name)
        if "/" in name:
            raise UsageError(f"{name!r} contains '/', which separates the names of included flows")
        others = [node.name for node in self._flow.draft.nodes if node is not self._drafted]
        if name in others:
            raise BadFlow(f"flow {self._flow.name!r} has a node {name!r} already")
        self._drafted.name = name
        return self

    def after(self, *nodes: Node[Any], on: End = "success") -> Self:
        """Wait for other nodes: until they succeed, until they fail, or until they end in any way."""
        condition = _CONDITIONS.get(on)
        if condition is None:
            raise UsageError(f"on={on!r}; expected one of {', '.join(_CONDITIONS)}")
        for node in nodes:
            if not isinstance(node, Node):
                raise UsageError(f"{node!r} is not a node of a flow; give what flow.add(…) returned")
            if node._flow is not self._flow:
                raise BadFlow(
                    f"node {self.name!r} of flow {self._flow.name!r} cannot wait for {node.name!r},"
                    f" which is in another flow {node._flow.name!r}; include that flow with flow.include(…)"
                )
            if node is self:
                raise BadFlow(f"node {self.name!r} cannot wait for itself")
            self._drafted.needs[node.id] = condition
            self._explicit.add(node.id)
        return self

    def needs(self, policy: Literal["all", "any"] | int) -> Self:
        """How many of the nodes that it waits for must end as wanted: all of them (default), any, or this number."""
        if policy == "all":
            self._drafted.required = None
        elif policy == "any":
            self._drafted.required = 1
        elif type(policy) is int and policy >= 1:
            self._drafted.required = policy
        else:
            raise UsageError(f'needs({policy!r}); give "all", "any" or a number from 1 on')
        return self

    def when(self, condition: object) -> Self:
        """Run only if a condition on results of other nodes holds; otherwise the node is skipped.

        Conditions are comparisons of results, combined with ``&``, ``|`` and ``~``:
        ``.when((total.result.errors > 0) & ~total.result.known)``.
        """
        if self._drafted.kind is not NodeKind.JOB:
            raise UsageError(
                f"node {self.name!r} is not one job; set the condition on a node before it, whose result it takes"
            )
        given = as_condition(condition)
        self._drafted.when = {"test": given.test, "text": given.text}
        for id in sorted(given.needs):
            self._drafted.inputs.append(StoredReference(id))
            self._flow.need_of(self, id)
        return self

    def may_fail(self) -> Self:
        """Let the flow succeed even if this node fails. A node that takes its result then gets None."""
        if self._drafted.kind is NodeKind.INCLUDE:
            raise UsageError(f"node {self.name!r} includes a flow; call may_fail() on nodes of that flow")
        self._drafted.may_fail = True
        return self

    def _take(self, reference: Reference) -> None:
        """Wait for the node whose result this one takes."""
        self._drafted.inputs += ids_of([reference])
        self._flow.need_of(self, stored_of(reference).id)

    def __repr__(self) -> str:
        return f"<node {self.name} of flow {self._flow.name}>"


class MapNode(Node[R]):
    """The jobs of a map, one per item."""

    @property
    def results(self) -> list[R]:
        """The future results, in the order of the items; None for an item whose job has no result."""
        reference = Reference(StoredReference(self.id, (), many=True), f"{self.name}.results")
        return cast("list[R]", reference)

    def at_once(self, number: int) -> Self:
        """Run at most this many jobs of the map at the same time, on all workers together."""
        if type(number) is not int or number < 1:
            raise UsageError(f"at_once({number!r}); give a number from 1 on")
        self._flow.rules[number] = Rule(f"{AT_ONCE}.{number}", max=number)
        limit = f"{AT_ONCE}.{number}/{self.id}"
        self._flow.limit_map(self._drafted, self._made, limit)
        return self


class Flow:
    """A graph of jobs to start: ``flow = app.flow("import")``, then ``flow.add(…)`` and ``flow.start()``."""

    def __init__(
        self,
        client: Client,
        name: str,
        key: str | None = None,
        on_failure: Literal["skip", "stop", "hold"] = "skip",
        timeout: Duration | None = None,
        stop_running: bool = False,
        callback_url: str | None = None,
    ) -> None:
        check_name("flow", name)
        if key is not None:
            check_key("key", key)
        if on_failure not in set(FailureMode):
            raise UsageError(f"on_failure={on_failure!r}; expected one of {', '.join(FailureMode)}")
        if stop_running and on_failure != "stop":
            raise UsageError('stop_running=True needs on_failure="stop"')
        if callback_url is not None:
            read_url(callback_url, what="callback_url")
        self._client, self._callback_url = client, callback_url
        self._timeout = None if timeout is None else read_duration("timeout", timeout)
        surroundings = current_job()
        self.draft = Draft(
            new_id(),
            current_tenant() or client.tenant,
            name,
            key,
            FailureMode(on_failure),
            stop_running,
            correlation_id=None if surroundings is None else surroundings.correlation_id,
        )
        self.rules: dict[int, Rule] = {}
        self._nodes: dict[UUID, Node[Any]] = {}
        self._results: dict[
            UUID, UUID
        ] = {}  # the result of each included flow, and the node that stands for it
        self._started = False

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self.draft.name

    # Nodes -------------------------------------------------------------------------------------------------------------

    def add(self, task: BoundTask[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add a job of this task. Arguments may be results of other nodes, which it then waits for.

        Options of the job come from ``task.using(…)``, those of the node from the methods of the returned node.
        """
        return self._add(task, args, kwargs, NodeRole.BODY)

    def map(self, task: BoundTask[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> MapNode[R]:
        """Add one job per item of a list, or of the list that another node returns: ``row=each(rows.result)``."""
        self._check_open()
        declared = _declared(task, "flow.map")
        made = map_jobs(self._client, declared, task._call, args, kwargs)
        drafted = DraftNode(new_id(), self._free(declared.name), NodeKind.MAP, made.jobs, grows=made.grows)
        self.draft.nodes.append(drafted)
        node: MapNode[R] = MapNode(self, drafted, declared, made)
        self._nodes[node.id] = node
        return node

    def chain(self, *tasks: BoundTask[Any, Any, Any] | TaskCall[Any]) -> list[Node[Any]]:
        """Add jobs one after the other; each takes the result of the one before as its first argument.

        The first may be a task without arguments or ``task.call(…)``. A later ``task.call(…)`` adds further arguments.
        """
        nodes: list[Node[Any]] = []
        for given in tasks:
            call = given if isinstance(given, TaskCall) else TaskCall(given, (), {})
            first = (nodes[-1].result,) if nodes else ()
            nodes.append(self._add(call.task, (*first, *call.args), call.kwargs, NodeRole.BODY))
        return nodes

    def include(self, flow: Flow, prefix: str | None = None) -> Node[Any]:
        """Add all nodes of another flow as one node. Its result is what that flow returns.

        ``prefix`` is the name of the node, by default that of the flow. The other flow cannot be started by itself.
        """
        self._check_open()
        flow._check_open()
        if flow is self:
            raise BadFlow(f"flow {self.name!r} cannot include itself")
        if (flow.draft.key, flow._timeout, flow._callback_url) != (None, None, None):
            raise UsageError(
                f"flow {flow.name!r} has a key, a timeout or a callback_url, which only a flow that is started can have"
            )
        name = self._free(prefix or flow.name)
        drafted = DraftNode(flow.draft.id, name, NodeKind.INCLUDE, flow=flow.draft)
        self.draft.nodes.append(drafted)
        flow._started = True
        self.rules |= flow.rules
        node: Node[Any] = Node(self, drafted, None, NodeJobs([], []))
        self._nodes[node.id] = node
        if flow.draft.returns is not None:
            self._results[flow.draft.returns.id] = node.id
        return node

    def finally_(self, task: BoundTask[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add a job that runs after all other nodes have ended, whatever happened, also after a cancel."""
        return self._add(task, args, kwargs, NodeRole.FINALLY)

    def on_failure(self, task: BoundTask[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add a job that runs at the first failure of a node, while other branches may still run."""
        return self._add(task, args, kwargs, NodeRole.ON_FAILURE)

    def returns(self, result: object) -> None:
        """Declare the result of the flow: that of a node, or a part of it."""
        self._check_open()
        if not isinstance(result, Reference):
            raise UsageError(f"{result!r} is not the result of a node; give node.result or node.results")
        self.draft.returns = stored_of(result)

    def _add(
        self, task: BoundTask[Any, R, Any], args: Any, kwargs: Mapping[str, Any], role: NodeRole
    ) -> Node[R]:
        self._check_open()
        declared = _declared(task, "flow.add")
        made = node_jobs(self._client, declared, task._call, args, kwargs)
        (job,) = made.jobs
        drafted = DraftNode(job.id, self._free(declared.name), jobs=[job], role=role)
        self.draft.nodes.append(drafted)
        node: Node[R] = Node(self, drafted, declared, made)
        self._nodes[node.id] = node
        return node

    def _free(self, name: str) -> str:
        return unique_name(name, (node.name for node in self.draft.nodes))

    def need_of(self, node: Node[Any], id: UUID) -> None:
        """Make a node wait for the node with this result. One that runs late waits for all others anyway."""
        need = self._results.get(id, id)
        if need not in self._nodes:
            raise BadFlow(f"node {node.name!r} takes the result of a node that is not in flow {self.name!r}")
        if node._drafted.role is NodeRole.BODY:
            node._drafted.needs.setdefault(need, EdgeCondition.SUCCESS)

    def limit_map(self, drafted: DraftNode, made: NodeJobs, limit: str) -> None:
        """Make the jobs of a map count against a limit."""
        drafted.jobs[:] = [limited(job, limit, grows=made.grows) for job in drafted.jobs]

    # Start -------------------------------------------------------------------------------------------------------------

    def start(self, connection: object = None) -> FlowRun:
        """Store the flow in one transaction; workers begin with the nodes that wait for nothing.

        With ``connection``, the flow is written in the transaction that is open there, and begins when you commit. A
        flow with a key that was started before is not started again: the first one is returned.
        """
        return start(self._client, self._ready(), connection)

    async def astart(self, connection: object = None) -> FlowRun:
        """Async version of ``start``."""
        return await astart(self._client, self._ready(), connection)

    def rows_of_job(self, store: str | None) -> FlowPlan:
        """Return the rows of the flow for the job that starts it; ``ctx.start(flow)`` calls this."""
        here = self._client.store_name(None)
        if store is not None and store != here:
            raise UsageError(
                f"flow {self.name!r} belongs to store {here!r} and this job to {store!r}; start it with flow.start()"
            )
        if self.draft.key is not None:
            raise UsageError(
                f"flow {self.name!r} has a key, so it may exist already; start it with flow.start() in a step"
            )
        made = prepared(self._client, self._ready(), self._client.store(None))
        if large := [job.task for job in made.jobs if isinstance(job.args, SpilledText)]:
            raise UsageError(
                f"the arguments of {large[0]} are too large to be written with the end of this job; use flow.start()"
            )
        return made

    def _ready(self) -> Any:
        """Check the flow and return its rows."""
        self._check_open()
        self._settle_needs()
        if self._timeout is not None:
            store = self._client.store(None)
            self.draft.expires_at = (self._client.pin or store.now()) + self._timeout
        self.draft.created_by = who()
        if self.draft.on_failure is FailureMode.STOP:
            self.draft.nodes.append(self._stop_node())
        made = plan(self.draft)
        if self._callback_url is not None:
            rows = callback_rows(made.groups[0], self._callback_url, new_id())
            made.jobs.append(rows.job)
            made.edges.append(rows.edge)
            made.joins.extend(rows.joins)
        self._started = True
        return made, tuple(self.rules.values())

    def _stop_node(self) -> DraftNode:
        """The node that stops the flow at the first failure."""
        job = NewJob(new_id(), STOP_FLOW, tenant=self.draft.tenant)
        return DraftNode(job.id, self._free("stop"), jobs=[job], role=NodeRole.ON_FAILURE)

    def _settle_needs(self) -> None:
        """Let nodes that take the result of a node that may fail run either way, and check that they accept None."""
        for node in self._nodes.values():
            drafted = node._drafted
            for id in drafted.needs:
                other = self._nodes.get(id)
                if other is not None and other._drafted.may_fail and id not in node._explicit:
                    drafted.needs[id] = EdgeCondition.END
            for name, reference in node._made.fed.items():
                if self._may_miss(node, reference) and not missing_allowed(_known(node._declared), name):
                    raise BadFlow(
                        f"node {node.name!r} may run without {name_of(reference)}, and its argument {name!r} does not"
                        f" accept None; let it be optional, or wait for the success of that node"
                    )

    def _may_miss(self, node: Node[Any], reference: Reference) -> bool:
        """Whether a node may begin although the result that it takes does not exist."""
        stored, drafted = stored_of(reference), node._drafted
        if stored.many:
            return False  # a list, with None for each missing result
        if drafted.role is not NodeRole.BODY or drafted.required is not None:
            return True
        need = self._results.get(stored.id, stored.id)
        return drafted.needs.get(need) is not EdgeCondition.SUCCESS

    def _check_open(self) -> None:
        if self._started:
            raise UsageError(f"flow {self.name!r} was started or included already; build another one")

    def __repr__(self) -> str:
        return f"<flow {self.name} with {len(self.draft.nodes)} nodes>"


def _known(declared: Declared | None) -> Declared:
    assert declared is not None  # only nodes with a task have arguments
    return declared


def _declared(task: object, verb: str) -> Declared:
    if not isinstance(task, BoundTask):
        raise UsageError(f"{task!r} is not a task; declare it with @app.task and give that to {verb}")
    return task._declared
