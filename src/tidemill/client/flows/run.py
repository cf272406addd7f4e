"""A started flow: its status, nodes and result, and actions on it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from tidemill.archive.flow_reads import ArchivedFlowReads, FlowReads, find_flow, refuse_archived
from tidemill.archive.flows import groups_of
from tidemill.client._base import async_twin
from tidemill.client.access import note
from tidemill.client.flows.graph import FlowGraph, graph_of, read_timeline
from tidemill.client.jobs.handle import Job
from tidemill.client.watch import await_groups
from tidemill.domain.archived_flows import ArchivedFlow, read_flow_counts
from tidemill.domain.bounds import check_text
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.flow_states import fails_flow, node_label
from tidemill.domain.flow_timeline import ROWS, TimelineRow
from tidemill.domain.graph import FlowRow, FlowState, GroupCounts
from tidemill.domain.job import JobRow, Move
from tidemill.domain.references import INPUTS, look_up, read_stored
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import FlowFailed, FlowNotFound, IllegalTransition, JobCancelled, UsageError, WaitTimeout
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.client.flows.why import NodeReason

WAIT: Duration = 300.0
_POLL = 0.25
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One job of a flow: its name there, its place among the jobs of a map, and its handle."""

    name: str
    position: int | None
    job: Job[Any]

    @property
    def status(self) -> str:
        """The status of the job, or ``skipped`` if it was cancelled because it could not or need not run."""
        return node_label(self.job.row)

    @property
    def id(self) -> UUID:
        """The id of the job."""
        return self.job.id


class FlowRun:
    """A flow that was started."""

    def __init__(
        self, client: Client, row: FlowRow, store: str, archived: ArchivedFlow | None = None
    ) -> None:
        self._client, self._row, self._store = client, row, store
        self._archived = archived

    # State -------------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> UUID:
        """The id of the flow."""
        return self._row.id

    @property
    def name(self) -> str:
        """The name of the flow."""
        return self._row.name

    @property
    def key(self) -> str | None:
        """The key of its start, if it has one."""
        return self._row.key

    @property
    def tenant(self) -> str:
        """The tenant of the flow and of all its jobs."""
        return self._row.tenant

    @property
    def row(self) -> FlowRow:
        """The record of the flow as of the last look."""
        return self._row

    @property
    def status(self) -> FlowState:
        """The status as of now: running, completed, failed or cancelled."""
        return self.refresh()._row.state

    @property
    def ended(self) -> bool:
        """Whether all nodes had ended as of the last look."""
        return self._row.ended_at is not None

    @property
    def created_at(self) -> datetime:
        """When it was started."""
        return self._row.created_at

    def refresh(self) -> Self:
        """Read the flow again."""
        found = find_flow(self._client, self._store, self.id, self.tenant)
        if found is None:
            raise FlowNotFound(f"flow {self.id} is gone: it was deleted", id=self.id)
        self._row, self._archived = found
        return self

    arefresh = async_twin(refresh)

    @property
    def is_archived(self) -> bool:
        """Whether it is archived, or on its way to the archive, as of the last look."""
        return self._archived is not None

    @property
    def archived_at(self) -> datetime | None:
        """When it was archived, if it was, as of the last look."""
        return self._row.archived_at

    @property
    def _where(self) -> Store:
        return self._client.store(self._store)

    @property
    def _reads(self) -> FlowReads:
        if self._archived is None:
            return self._where
        return ArchivedFlowReads(self._client, self._store, self._archived)

    def counts(self) -> GroupCounts:
        """How many jobs the flow has, how many have not ended, and how many failed."""
        if self._archived is not None:
            return read_flow_counts(self._archived)
        inner = groups_of(self._where, self._row)
        counts = self._where.group_counts([self.id, *(group.id for group in inner)])
        # A group inside the flow is a member of the group around it, and no job.
        total = sum(count.total for count in counts) - len(inner)
        left = sum(count.remaining for count in counts) - sum(group.ended_at is None for group in inner)
        bad = sum(count.bad for count in counts) - sum(group.state is FlowState.FAILED for group in inner)
        return GroupCounts(self.id, max(total, 0), max(left, 0), max(bad, 0))

    @property
    def progress(self) -> float:
        """The share of jobs that have ended, from 0 to 1."""
        counts = self.counts()
        return 1.0 if not counts.total else 1 - counts.remaining / counts.total

    def nodes(self) -> list[FlowNode]:
        """Return the jobs of the flow, in the order in which they were added."""
        return self._nodes_of(self._rows())

    def _nodes_of(self, rows: Iterable[JobRow]) -> list[FlowNode]:
        return [
            FlowNode(row.details.node or row.task, row.details.position, Job(self._client, row, self._store))
            for row in rows
        ]

    def overview(self) -> tuple[FlowGraph, list[FlowNode], list[TimelineRow]]:
        """Return the graph, the nodes and the timeline, from one look at the jobs."""
        reads = self.refresh()._reads
        rows = list(self._rows(reads))
        graph = graph_of(reads, self._row, rows, self._client.clock.now())
        return graph, self._nodes_of(rows), self._timeline_of(rows, ROWS)

    anodes = async_twin(nodes)

    def timeline(self, limit: int = ROWS) -> list[TimelineRow]:
        """Return the jobs that have begun, in the order in which their last executions began."""
        return self._timeline_of(list(self._rows()), limit)

    def _timeline_of(self, rows: list[JobRow], limit: int) -> list[TimelineRow]:
        return read_timeline(self._where, rows, self.tenant, self._client.pin or self._where.now(), limit)

    atimeline = async_twin(timeline)

    def node(self, name: str) -> FlowNode:
        """Return one node by its name. The name of a map is that of its first job; ``"load [3]"`` is the fourth."""
        nodes = self.nodes()
        for node in nodes:
            if name == node.name or name.replace(" [", "[") == f"{node.name}[{node.position}]":
                return node
        names = ", ".join(sorted({node.name for node in nodes})[:20])
        raise UsageError(f"flow {self.name!r} has no node {name!r}; its nodes are {names}")

    def why(self, node: str | None = None) -> list[NodeReason]:
        """Explain the flow by the nodes that the others wait for, by the nodes that failed, or by one node."""
        from tidemill.client.flows.why import why_flow

        return why_flow(self, node)

    awhy = async_twin(why)

    def _rows(self, reads: FlowReads | None = None) -> Iterator[JobRow]:
        after: UUID | None = None
        if reads is None:
            if self.ended and self._archived is None:
                self.refresh()  # it may have been archived since the last look
            reads = self._reads
        while page := reads.flow_jobs(self.id, tenant=self.tenant, after=after, limit=_PAGE):
            yield from page
            after = page[-1].id

    def graph(self) -> FlowGraph:
        """Return the graph with the statuses of its nodes, for pictures and reports."""
        return self.overview()[0]

    agraph = async_twin(graph)

    # Waiting -----------------------------------------------------------------------------------------------------------

    def result(self, timeout: Duration | None = WAIT) -> Any:
        """Wait until the flow has ended, and return what ``flow.returns`` names.

        Raises ``FlowFailed`` with the first failed node, ``JobCancelled`` or ``WaitTimeout``.
        """
        seconds = None if timeout is None else read_duration("timeout", timeout).total_seconds()
        ends = None if seconds is None else time.monotonic() + seconds
        for _ in self._looks(ends):
            if self.ended:
                return self._conclude()
        raise WaitTimeout(
            f"flow {self.name!r} ({self.id}) has not ended within {seconds:g} s; it is {self._row.state}",
            id=self.id,
        )

    aresult = async_twin(result)

    def _looks(self, ends: float | None) -> Generator[None, None, None]:
        """Read the flow when groups have ended, and several times a second, until the time is over."""
        self.refresh()
        yield
        listener = self._where.listen()
        try:
            while ends is None or time.monotonic() < ends:
                await_groups(listener, _POLL if ends is None else min(_POLL, ends - time.monotonic()))
                self.refresh()
                yield
        finally:
            listener.close()

    def _conclude(self) -> Any:
        row = self._row
        if row.state is FlowState.FAILED:
            bad = next((job for job in self._rows() if fails_flow(job)), None)
            why = "" if bad is None else f": node {bad.details.node or bad.task} {bad.state}: {bad.reason}"
            raise FlowFailed(
                f"flow {self.name!r} failed{why}", id=self.id, status=row.state, error=bad and bad.error
            )
        if row.state is FlowState.CANCELLED:
            raise JobCancelled(
                f"flow {self.name!r} was cancelled: {row.cancel_reason}", id=self.id, reason=row.cancel_reason
            )
        return self._returned()

    def _returned(self) -> Any:
        stored = read_stored(self._row.rules.get("returns"))
        if stored is None:
            return None
        if stored.many:
            results = [self._value(job) for job in self._members(stored.id)]
            return look_up(results, stored.path) if stored.path else results
        found = self._reads.get([stored.id], tenant=self.tenant)
        return look_up(self._value(found[0]), stored.path) if found else None

    def _members(self, group: UUID) -> Iterator[JobRow]:
        after = -1
        reads = self._reads
        while page := reads.group_jobs(group, tenant=self.tenant, after=after, limit=_PAGE):
            yield from page
            after = page[-1].details.position or 0

    def _value(self, job: JobRow) -> Any:
        if job.result is None:
            return None
        text = read_value(self._where, job.result)
        registry = self._client.registry
        return registry.get(job.task).result.load(text) if job.task in registry else json.loads(text)

    def watch(self) -> Iterator[FlowRun]:
        """Yield the flow at each change of its status, and several times a second while it runs, until it has ended."""
        for _ in self._looks(None):
            yield self
            if self.ended:
                return

    async def awatch(self) -> AsyncIterator[FlowRun]:
        """Async version of ``watch``."""
        looks = self._looks(None)
        try:
            while not await self._client.in_thread(lambda: next(looks, 0)):
                yield self
                if self.ended:
                    return
        finally:
            await self._client.in_thread(looks.close)

    # Actions -----------------------------------------------------------------------------------------------------------

    def cancel(self, reason: str | None = None, *, hard: bool = False) -> Self:
        """Let no further node begin, and ask running ones to stop. ``finally_`` nodes still run, unless ``hard``."""
        check_text("reason", reason)
        store, why, now = self._where, reason or "cancelled", self._client.pin
        self.refresh()
        refuse_archived("cancel", self._row, self._archived)
        if self.ended:
            raise IllegalTransition(f"cannot cancel flow {self.id}: it is {self._row.state}", id=self.id)
        # The leader cancels the jobs. Only a hard cancel begins at once.
        waiting = [job for job in self._rows() if job.state not in ENDED | HELD] if hard else []
        with store.transaction():
            changed = store.change_flow(self.id, tenant=self.tenant, cancel_reason=why, now=now)
            if changed is None:
                raise IllegalTransition(f"cannot cancel flow {self.id}: it has ended", id=self.id)
            self._note("cancelled", {"status": self._row.state.value}, {"reason": why, "hard": hard})
            if hard:
                store.move([_cancelled(job, why) for job in waiting[:_PAGE]], now=now)
        store.notify(["cascade", "cancel", "ended"])
        return self.refresh()

    acancel = async_twin(cancel)

    def retry(self, from_: str | None = None, *, downstream: bool = False) -> Self:
        """Run the failed nodes again, and those that were skipped because of them.

        ``from_`` names one node to begin with. With ``downstream``, completed nodes after it run again as well.
        """
        from tidemill.client.flows.actions import retry

        refuse_archived("retry", self.refresh()._row, self._archived)
        retry(self, from_, downstream=downstream)
        return self.refresh()

    aretry = async_twin(retry)

    def skip(self, node: str, result: object = None) -> Self:
        """Count a node that waits, is pending or failed as succeeded, with this result for nodes that take it."""
        from tidemill.client.flows.actions import skip

        refuse_archived("skip a node of", self.refresh()._row, self._archived)
        skip(self, node, result)
        return self.refresh()

    askip = async_twin(skip)

    def signal(self, node: str, name: str, payload: object = None, *, key: str | None = None) -> bool:
        """Send a signal to the job of a node, as ``app.signal`` does; one job of a map is ``"load [3]"``.

        Returns False for a key that the job has accepted before.
        """
        from tidemill.client.signals import Signals

        refuse_archived("signal a node of", self.refresh()._row, self._archived)
        target = self.node(node)
        if target.position is not None and target.name == node:
            raise UsageError(
                f"node {node!r} of flow {self.name!r} is a map of several jobs; signal one of them as '{node} [0]'"
            )
        return Signals(self._client).send(
            target.job, name, payload, key=key, tenant=self.tenant, store=self._store
        )

    asignal = async_twin(signal)

    def _note(self, action: str, before: dict[str, object] | None, after: dict[str, object] | None) -> None:
        kind = self._row.kind.value
        subject, now = f"{kind}:{self.id}", self._client.pin
        note(self._where, f"{kind}.{action}", subject, self.tenant, before=before, after=after, now=now)

    def __repr__(self) -> str:
        return f"<flow {self.name} {self.id} {self._row.state}>"


def _cancelled(job: JobRow, reason: str) -> Move:
    return Move(job.id, job.tenant, frozenset({job.state}), JobState.CANCELLED, reason)


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def takes(job: JobRow, id: UUID) -> bool:
    """Whether the arguments or the condition of a job read the result of another one."""
    return str(id) in _listed(job.details.options.get(INPUTS))
