"""Growth of a flow or batch by a running job: new nodes, written with its completion."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, cast
from uuid import UUID

from tidemill.domain.flow_plan import DraftNode, FlowPlan, NodeKind, plan_growth, unique_name
from tidemill.domain.graph import Additions, EdgeCondition, FlowFilter, GroupKind
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.references import Reference, StoredReference, stored_of
from tidemill.domain.states import JobState
from tidemill.engine.inputs import members
from tidemill.errors import UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value

if TYPE_CHECKING:
    from tidemill.engine.context import Context

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_CREATING = threading.Lock()
ENDED_ALREADY = "this job has ended; nothing can be added to its flow"


class BuiltJobs(Protocol):
    """The jobs of one node, and the results that their arguments take."""

    @property
    def jobs(self) -> list[NewJob]: ...

    @property
    def inputs(self) -> list[Reference]: ...

    @property
    def grows(self) -> bool: ...


class HasResult(Protocol[R_co]):
    """A job with a result of this type."""

    def result(self) -> R_co: ...


class NodeTask(Protocol[P, R_co]):
    """A task of which nodes are made: ``@app.task``, or its ``using(…)``."""

    @property
    def name(self) -> str: ...

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> HasResult[R_co]: ...

    def node_jobs(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_map: bool) -> BuiltJobs: ...


class NewFlow(Protocol):
    """A flow that was built with ``app.flow(…)`` and not started yet."""

    def rows_of_job(self, store: str | None) -> FlowPlan: ...


class GrownNode(Generic[R]):
    """A node that a running job adds to its flow."""

    def __init__(self, growth: FlowGrowth, drafted: DraftNode) -> None:
        self._growth, self._drafted = growth, drafted

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
        """The future result, to give to other new nodes."""
        many = self._drafted.kind is NodeKind.MAP
        return cast(R, Reference(StoredReference(self.id, (), many), f"{self.name}.result"))

    def after(self, *nodes: GrownNode[Any]) -> Self:
        """Wait for the success of other new nodes."""
        for node in nodes:
            if node._growth is not self._growth:
                raise UsageError(
                    f"{node.name!r} was not added by this job; a new node waits for new nodes only"
                )
            self._drafted.needs[node.id] = EdgeCondition.SUCCESS
        return self

    def before(self, *names: str) -> Self:
        """Make nodes that wait for this job wait for the new node as well."""
        self._growth.hold_back(self._drafted, names)
        return self


class FlowGrowth:
    """The jobs and edges that one execution adds to its flow or batch."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._nodes: list[DraftNode] = []
        self._rows: list[Additions] = []
        self._before: dict[UUID, list[UUID]] = {}
        self._closed = False

    def add(self, task: NodeTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> GrownNode[R]:
        """Add a job of this task to the flow of the running job, if the running job completes."""
        return self._grown(task, args, kwargs, is_map=False)

    def map(self, task: NodeTask[P, R], /, *args: P.args, **kwargs: P.kwargs) -> GrownNode[list[R]]:
        """Add one job per item of a list: ``ctx.flow.map(load, row=each(rows))``."""
        node: GrownNode[Any] = self._grown(task, args, kwargs, is_map=True)
        return node

    def _grown(self, task: Any, args: tuple[Any, ...], kwargs: Any, *, is_map: bool) -> GrownNode[Any]:
        self._check_member()
        if not callable(getattr(task, "node_jobs", None)):
            raise UsageError(
                f"{task!r} is not a task; declare it with @app.task and give that to ctx.flow.add"
            )
        made: BuiltJobs = task.node_jobs(args, kwargs, is_map=is_map)
        if made.grows:
            raise UsageError("the list of a map that a job adds must be known; give each(…) a list")
        with self._lock:
            name = unique_name(task.name, (node.name for node in self._nodes))
            id = new_id() if is_map else made.jobs[0].id
            drafted = DraftNode(id, name, NodeKind.MAP if is_map else NodeKind.JOB, made.jobs)
            known = {node.id for node in self._nodes}
            for reference in made.inputs:
                stored = stored_of(reference)
                if stored.id not in known:
                    raise UsageError(
                        f"{task.name} takes a result of a node that this job did not add; pass the value itself"
                    )
                drafted.inputs.append(stored)
                drafted.needs[stored.id] = EdgeCondition.SUCCESS
            self._nodes.append(drafted)
        return GrownNode(self, drafted)

    def add_rows(self, rows: Additions) -> None:
        """Add rows that were computed elsewhere."""
        with self._lock:
            self._check_open()
            self._rows.append(rows)

    def hold_back(self, drafted: DraftNode, names: tuple[str, ...]) -> None:
        """Let nodes that wait for the running job wait for a new one as well."""
        waiting = self._dependants()
        for name in names:
            ids = [job.id for job in waiting if job.details.node == name]
            if not ids:
                known = ", ".join(sorted({job.details.node or job.task for job in waiting})) or "none"
                raise UsageError(f"no node {name!r} waits for this job; nodes that do: {known}")
            self._before.setdefault(drafted.id, []).extend(ids)

    def _dependants(self) -> list[JobRow]:
        context = self._context
        store = context.outlet.flow_store
        ids = [edge.job_id for edge in store.edges_of([context.job_id]) if edge.needs_id == context.job_id]
        return store.get(ids, tenant=context.tenant) if ids else []

    def _check_member(self) -> None:
        self._check_open()
        if self._context.job.details.group_id is None:
            raise UsageError(
                f"job {self._context.job_id} belongs to no flow and no batch; start one with app.flow(…), or use ctx.then"
            )

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(ENDED_ALREADY)

    def close(self) -> Additions | None:
        """Accept no more nodes; return the rows of what was added, if anything was."""
        with self._lock:
            self._closed = True
            if not self._nodes and not self._rows:
                return None
            job = self._context.job
            parts = list(self._rows)
            if self._nodes:
                parts.append(
                    plan_growth(self._nodes, job.details, job.tenant, self._before, first=job.id.int % 512)
                )
            return merged(parts)


def merged(parts: list[Additions]) -> Additions:
    """Several additions as one."""
    return Additions(
        jobs=tuple(row for part in parts for row in part.jobs),
        edges=tuple(row for part in parts for row in part.edges),
        joins=tuple(row for part in parts for row in part.joins),
        groups=tuple(row for part in parts for row in part.groups),
        records=tuple(row for part in parts for row in part.records),
        waits=tuple(row for part in parts for row in part.waits),
    )


def joined(first: Additions | None, second: Additions | None) -> Additions | None:
    """Two additions as one; None if there is none."""
    if first is None or second is None:
        return first or second
    return merged([first, second])


def results_of(store: Store, job: JobRow, name: str) -> Iterator[Any]:
    """The results of a node of the job's flow, page by page; None for a job without a result."""
    flow = job.details.flow_id
    if flow is None:
        raise UsageError(f"job {job.id} belongs to no flow, so there are no results of {name!r}")
    open_ids, group = [flow], None
    while open_ids and group is None:
        where = FlowFilter(job.tenant, kinds=frozenset({GroupKind.MAP}), group_id=open_ids.pop())
        inner = store.flows(where, limit=1_000)
        group = next((row for row in inner if row.name == name), None)
        open_ids += [row.id for row in inner]
    if group is None:
        raise UsageError(f"the flow of job {job.id} has no map {name!r}")
    for member in members(store, group.id, job.tenant):
        done = member.state is JobState.COMPLETED and member.result is not None
        yield json.loads(read_value(store, member.result)) if done and member.result is not None else None


class FlowVerbs:
    """Verbs of jobs that belong to a flow or a batch."""

    __slots__ = ()

    @property
    def growth(self) -> FlowGrowth:
        """The jobs and edges that this execution adds to its flow or batch."""
        context = cast("Context", self)
        grown = context.grown
        if grown is None:
            with _CREATING:
                grown = context.grown = context.grown or FlowGrowth(context)
        return grown

    def start(self, flow: NewFlow) -> UUID:
        """Start a flow if this job completes, in the same transaction; return the id of the flow.

        A failed or suspended execution starts nothing. A flow with a key is started with ``flow.start()`` in a step.
        """
        context = cast("Context", self)
        rows = flow.rows_of_job(context.outlet.store_name)
        self.growth.add_rows(
            Additions(tuple(rows.jobs), tuple(rows.edges), tuple(rows.joins), tuple(rows.groups))
        )
        return rows.groups[0].id

    async def astart(self, flow: NewFlow) -> UUID:
        """Start a flow like ``start``, without blocking the event loop."""
        return await asyncio.to_thread(self.start, flow)

    @property
    def flow(self) -> FlowGrowth:
        """The flow of this job, to add nodes: ``ctx.flow.add(load, row=row)``. They are written if this job completes."""
        return self.growth

    @property
    def batch(self) -> FlowGrowth:
        """The batch of this job, to add jobs: ``ctx.batch.add(load, row=row)``. They are written if this job completes."""
        return self.growth

    def results(self, node: str) -> Iterator[Any]:
        """The results of a map of this job's flow, in the order of its items, read page by page."""
        context = cast("Context", self)
        return results_of(context.outlet.flow_store, context.job, node)
