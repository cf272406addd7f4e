"""The part of the store contract for occurrences: ends of jobs and events that schedules react to.

Law 37. **An occurrence is written with its cause**: the end of a tied job of a definition in the transaction that ends it, and an
event in the transaction that stores it, once for each enabled schedule whose trigger names the definition or the event. An end
that is taken back removes its occurrence. An occurrence stays until ``drop_occurrences`` deletes it, in the transaction that
writes the fire, and it is deleted with its schedule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from uuid import UUID

from tidemill.domain.job import NewJob
from tidemill.domain.reactions import Occurrence, OccurrenceKey


class OccurrenceStore(ABC):
    """Ends of jobs and events that schedules have not used yet."""

    @abstractmethod
    def followed(self, definition_ids: Collection[UUID]) -> frozenset[UUID]:
        """The definitions among these that a schedule names in its trigger. Their new jobs must be tied."""

    @abstractmethod
    def reacting(self, *, after: UUID | None = None, limit: int = 500) -> list[UUID]:
        """The enabled schedules with occurrences, by id, after an id."""

    @abstractmethod
    def occurrences(self, schedule_ids: Collection[UUID], *, limit: int = 1_000) -> list[Occurrence]:
        """The occurrences of these schedules, by schedule, instant and id."""

    @abstractmethod
    def drop_occurrences(self, keys: Sequence[OccurrenceKey]) -> int:
        """Delete occurrences. Returns how many there were."""


def tied_if_followed(store: OccurrenceStore, jobs: Sequence[NewJob]) -> list[NewJob]:
    """New jobs, tied if a schedule runs after their definition. Jobs without a definition cost nothing."""
    ids = {id for job in jobs if (id := job.details.definition_id) is not None}
    followed = store.followed(ids) if ids else frozenset()
    if not followed:
        return list(jobs)
    return [job._replace(tied=True) if job.details.definition_id in followed else job for job in jobs]
