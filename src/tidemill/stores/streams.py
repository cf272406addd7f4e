"""The stream part of the store contract: values that a running job writes for live readers.

Law 38. **An item of a stream is written once.** ``write_streams`` is fenced like every write of a worker. An item whose job, name,
number and index exist already is ignored, so a batch may be written again after an answer was lost. Items are read in the order of
their number and index. They outlive executions, and are deleted, archived and restored with the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.streams import PAGE, START, StreamEntry, StreamPosition


class StreamStore(ABC):
    """Streams of jobs."""

    @abstractmethod
    def write_streams(self, entries: Sequence[StreamEntry]) -> frozenset[UUID]:
        """Insert items of held jobs, fenced by their ``number`` (the token) and ``worker``. Returns the lost ids."""

    @abstractmethod
    def stream(
        self, id: UUID, name: str, *, tenant: str, after: StreamPosition = START, limit: int = PAGE
    ) -> list[StreamEntry]:
        """The first items of a job's stream after a position, in order, each with ``worker`` None. At most 1,000."""

    @abstractmethod
    def stream_names(self, id: UUID, *, tenant: str) -> dict[str, int]:
        """The names of a job's streams in order, each with its number of items; empty if there is no such job."""
