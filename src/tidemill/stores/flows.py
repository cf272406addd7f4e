"""The workflow part of the store contract: edges, joins and groups.

Laws:

26. **An end is counted in the transaction that writes it**, whatever wrote it (``finish``, ``step``, ``move``), once for every edge to
    the job and once in its group. A reopening is counted back in the transaction that reopens the job.
29. **Nothing of a live flow leaves the live tables**: a tied job is not deleted, forgotten or archivable while its flow runs or while
    a job that needs it has not ended.
30. **Edges and groups never cross tenants.**
31. **No statement for plain jobs reads joins, dependencies or flows.** A plain finish leaves tied jobs alone; the store then writes
    just these in the tied way, and only what that rejects is lost.
33. **A waiting job is released once**, by the last end that its join requires, in the transaction of that end. A group is closed by
    the last of its members in the same way, and its end is counted like that of a job.
34. **Additions of a finish** are written if and only if the finish is accepted and completes or suspends its job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.archived_flows import ArchivedFlow
from tidemill.domain.graph import (
    Edge,
    FlowFilter,
    FlowRow,
    FlowTotals,
    GroupCounts,
    Join,
    NewGroup,
    NewJoin,
    Recounted,
    Started,
    UnreachableJob,
)
from tidemill.domain.job import JobRow, Move, NewJob
from tidemill.domain.node_results import JobStarts, NodeResult
from tidemill.domain.retention import ArchivedJob, Position, Selection


class FlowStore(ABC):
    """The writes of graphs."""

    @abstractmethod
    def start_flow(
        self,
        groups: Sequence[NewGroup],
        jobs: Sequence[NewJob],
        edges: Sequence[Edge],
        joins: Sequence[NewJoin],
        *,
        now: datetime | None = None,
    ) -> Started:
        """Insert a flow, all or nothing; the first group is the flow itself.

        If a flow with its tenant, name and key exists, nothing is inserted and that flow is the answer. Jobs that are members or needed
        become tied; such jobs, and jobs with edges, have no unique key. An edge may name a job or group that exists: an end that has
        happened is counted at once. A group without members and held counts is closed at once. Raises ``JobExists``,
        ``JobNotFound`` for a need or a parent group that the tenant does not have, and ``OldWorkers`` while a worker is alive whose
        version does not count ends.
        """

    @abstractmethod
    def attach(
        self, edges: Sequence[Edge], joins: Sequence[NewJoin], *, tenant: str, now: datetime | None = None
    ) -> None:
        """Add edges to waiting jobs. Ends that have happened are counted at once, also those of archived jobs.

        Raises ``WaitCycle`` if a need waits for its own dependant, and ``JobNotFound`` for an unknown need. An edge that exists gets the
        new condition and is counted again only if its join is new.
        """

    @abstractmethod
    def grow_group(
        self,
        group_id: UUID,
        jobs: Sequence[NewJob],
        joins: Sequence[NewJoin],
        *,
        tenant: str,
        now: datetime | None = None,
    ) -> None:
        """Add members to a group that holds counts, from outside; ``BatchEnded`` if it does not, ``FlowNotFound`` if there is none."""

    @abstractmethod
    def change_flow(
        self,
        id: UUID,
        *,
        tenant: str,
        cancel_reason: str | None = None,
        stops: bool = False,
        release: bool = False,
        now: datetime | None = None,
    ) -> FlowRow | None:
        """Change a live group: the first cancel reason stays; ``stops`` lets no further member begin; ``release`` gives up its held
        counts, which may close it. Returns the group afterwards; None if the tenant has no live group of this id.
        """

    @abstractmethod
    def reopen(
        self,
        flow_id: UUID,
        moves: Sequence[Move],
        *,
        tenant: str,
        edges: Sequence[Edge] = (),
        joins: Sequence[NewJoin] = (),
        now: datetime | None = None,
    ) -> frozenset[UUID]:
        """``move`` jobs of a flow back to ``pending`` or ``waiting``, and recount their joins. Returns the changed ids.

        ``edges`` and ``joins`` replace those of jobs that wait again: a suspended job has the join of its last wait.

        The flow runs again, in its next round if it had ended, without a cancel reason and stops.
        """

    @abstractmethod
    def recount_joins(
        self, *, after: UUID | None = None, limit: int = 500, now: datetime | None = None
    ) -> Recounted:
        """Compare the joins of waiting jobs and live groups with their edges, members and ends, by id, and repair them."""

    @abstractmethod
    def still_unreachable(self, ids: Collection[UUID]) -> frozenset[UUID]:
        """Lock the joins of these jobs, and return the jobs that can no longer start. For the transaction that skips them."""

    @abstractmethod
    def drop_unreachable(self, ids: Collection[UUID]) -> None:
        """Delete the notes that these jobs can no longer start."""


class FlowQueries(ABC):
    """The reads of graphs."""

    @abstractmethod
    def unreachable(self, limit: int) -> list[UnreachableJob]:
        """Waiting jobs that can no longer start, the longest noted first. Notes about other jobs are omitted."""

    @abstractmethod
    def edges_of(self, ids: Collection[UUID]) -> list[Edge]:
        """The edges from or to these jobs and groups, by job and need."""

    @abstractmethod
    def joins_of(self, ids: Collection[UUID]) -> list[Join]:
        """The counter rows of these jobs and groups, by id and shard."""

    @abstractmethod
    def flow(self, ids: Collection[UUID], *, tenant: str) -> list[FlowRow]:
        """The groups with these ids, by id."""

    @abstractmethod
    def flows(self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None) -> list[FlowRow]:
        """The matching groups with ids below ``after``, the newest first."""

    @abstractmethod
    def flow_jobs(
        self, flow_id: UUID, *, tenant: str, after: UUID | None = None, limit: int = 1000
    ) -> list[JobRow]:
        """The live jobs of a flow with ids above ``after``, by id."""

    @abstractmethod
    def group_jobs(self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000) -> list[JobRow]:
        """The live members of a map or batch at positions above ``after``, by position."""

    @abstractmethod
    def group_counts(self, ids: Collection[UUID]) -> list[GroupCounts]:
        """The numbers of members of these groups, by id."""


class NodeResults(ABC):
    """The reads of jobs that begin."""

    @abstractmethod
    def job_starts(self, ids: Collection[UUID]) -> JobStarts:
        """The details of jobs, and the results of ended jobs that these name as their inputs, of the same tenant.

        At most ``MOST_READ_AHEAD`` results of at most ``LARGEST_READ_AHEAD`` characters are read. A job reads others when it begins.
        """

    @abstractmethod
    def group_results(
        self, group_id: UUID, *, tenant: str, after: int = -1, limit: int = 1000
    ) -> list[NodeResult]:
        """The results of the members of a map or batch at positions above ``after``, by position."""


class FlowArchive(ABC):
    """The end of flows in the live tables."""

    @abstractmethod
    def due_flows(self, selection: Selection) -> list[FlowRow]:
        """Ended flows and batches of a selection of the live tables, the longest ended first. Read only.

        A flow counts as a job whose task is the flow's name. Flows are omitted while one of their jobs has not ended, or a job outside
        that has not ended needs the flow or one of its jobs.
        """

    @abstractmethod
    def flow_documents(
        self, flow_id: UUID, *, policy: str, tier: str, limit: int = 500, after: Position | None = None
    ) -> list[ArchivedJob]:
        """The ended jobs of a flow as documents, the longest ended first. Read only."""

    @abstractmethod
    def empty_groups(self, before: datetime, *, limit: int = 100) -> list[FlowRow]:
        """Maps outside of flows that ended before an instant, of which no job is left, and which no job that has not ended needs.

        The longest ended comes first. Read only.
        """

    @abstractmethod
    def drop_flows(self, ids: Collection[UUID]) -> frozenset[UUID]:
        """Delete ended groups of which no job is left, with the groups in them, their edges and joins. Returns the deleted ids."""


class FlowStats(ABC):
    """The numbers of flows."""

    @abstractmethod
    def flow_totals(self, *, tenant: str, ended_after: datetime) -> FlowTotals:
        """The numbers of flows (without batches and maps) and of waiting jobs. Read only."""

    @abstractmethod
    def stalled_flows(self, *, tenant: str, before: datetime, limit: int = 100) -> list[FlowRow]:
        """Live flows and batches with a job that has been pending since before an instant, while no other one runs or has ended
        since then, by id. Read only.
        """


class ArchivedFlowStore(ABC):
    """The documents of archived flows. The store of the jobs keeps them, wherever the jobs themselves are."""

    @abstractmethod
    def put_archived_flow(self, flow: ArchivedFlow, *, now: datetime | None = None) -> None:
        """Write the document of a flow; an existing one is replaced."""

    @abstractmethod
    def archived_flows(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedFlow]:
        """The documents with these ids, by id."""

    @abstractmethod
    def search_archived_flows(
        self, where: FlowFilter, *, limit: int = 100, after: UUID | None = None
    ) -> list[ArchivedFlow]:
        """The matching archived flows with ids below ``after``, the newest first, without their documents."""

    @abstractmethod
    def move_archived_flows(self, selection: Selection, *, tier: str | None, policy: str) -> int:
        """Move the flows of a selection of a tier to another tier, or delete them (None). Returns how many there were."""

    @abstractmethod
    def erase_archived_flows(self, tenant: str) -> int:
        """Delete the archived flows of a tenant. Returns how many there were."""
