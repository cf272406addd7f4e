"""The results of nodes that other nodes take as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import Details
from tidemill.domain.states import JobState

MOST_READ_AHEAD = 1_000
"""Results that are read together with the details of claimed jobs."""

LARGEST_READ_AHEAD = 64 * 1024
"""Characters of such a result. A job whose inputs are more, or larger, reads them when it begins."""


class NodeResult(NamedTuple):
    """A job as a source of a result. A member of a group that has not ended has no state."""

    id: UUID
    task: str
    node: str | None
    position: int | None
    state: JobState | None
    result: str | None

    @property
    def name(self) -> str:
        """The name of the node; that of the task if it has none."""
        return self.node or self.task


class JobStarts(NamedTuple):
    """The data that claimed jobs need before they begin: their details, and the results that they take."""

    details: Mapping[UUID, Details]
    results: Mapping[UUID, NodeResult]


NO_RESULTS: Mapping[UUID, NodeResult] = {}
NO_STARTS = JobStarts({}, NO_RESULTS)
