"""The part of the store contract that is about definitions, schedules and fires. Its laws, beside those of ``stores.base``:

15. **A write of a definition or of a schedule's rule is a compare-and-set** of its ``version`` or ``revision``, which rises by one
    with each. Among the living, a key is held by one definition of a tenant; a schedule's key by one schedule of a tenant.
16. **A schedule advances only from where it was read**: same revision, same last fire, enabled, and of no definition that is
    disabled or deleted. Whoever disables it first wins.
17. **A fire exists once**: ``note_fires`` says which ones are new, and only for those a job may be enqueued, in the same
    transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.timetable import (
    ActiveJob,
    Advance,
    Definition,
    DefinitionVersion,
    Due,
    Fired,
    FireKey,
    Schedule,
    Scope,
)


class Definitions(ABC):
    """Stored configurations of tasks."""

    @abstractmethod
    def put_definition(
        self, definition: Definition, *, by: str | None = None, now: datetime | None = None
    ) -> Definition | None:
        """Write a definition over the version that it names, and its new version beside the old ones; as it is now stored.

        Version 0 is a new one: None while a living one of the tenant has its key. Otherwise None if the stored version is
        another, it is deleted or another tenant's, or another living one has the key. ``created_at``, ``created_by`` and
        ``enabled`` of a stored one stay as they are.
        """

    @abstractmethod
    def definitions(
        self,
        *,
        tenant: str,
        ids: Collection[UUID] | None = None,
        keys: Collection[str] | None = None,
        task: str | None = None,
        deleted: bool = False,
    ) -> list[Definition]:
        """The definitions that match, by tenant and key, the living before the deleted (of which the last to go comes first);
        with ``deleted`` those too.
        """

    @abstractmethod
    def definition_versions(self, id: UUID, *, tenant: str) -> list[DefinitionVersion]:
        """Every version of a definition, the oldest first."""

    @abstractmethod
    def enable_definitions(
        self, ids: Collection[UUID], *, tenant: str, enabled: bool, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Enable or disable living definitions; those that changed. Their schedules get a new revision, and count from now:
        they are looked at at once (``next_fire_at`` is now), or have no next fire while the definition is disabled.
        """

    @abstractmethod
    def drop_definitions(
        self, ids: Collection[UUID], *, tenant: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Mark living definitions as deleted and remove their schedules; those that changed. Their keys are free again."""


class Schedules(ABC):
    """When jobs are made."""

    @abstractmethod
    def put_schedules(self, schedules: Sequence[Schedule], *, now: datetime | None = None) -> frozenset[UUID]:
        """Write schedules, each over the revision that it names (0: a new one), counting from now; the lost ids.

        Lost are those whose stored revision is another, who are gone or another tenant's, whose key another had before (of a
        batch the first to name a free one gets it), or whose definition is no living one of the tenant. What is written has
        the next revision, ``updated_at`` and ``since_at`` of now, and the ``next_fire_at`` given; ``created_at`` and
        ``last_fire_at`` of a stored one stay as they are.
        """

    @abstractmethod
    def schedules(
        self,
        *,
        tenant: str,
        ids: Collection[UUID] | None = None,
        keys: Collection[str] | None = None,
        definition_id: UUID | None = None,
        scope: Scope | None = None,
    ) -> list[Schedule]:
        """The schedules that match, by tenant and key."""

    @abstractmethod
    def enable_schedules(
        self,
        ids: Collection[UUID],
        *,
        tenant: str,
        enabled: bool,
        note: str | None = None,
        now: datetime | None = None,
    ) -> frozenset[UUID]:
        """Enable or disable schedules, with a note on why; those that changed, which get a new revision. Enabled ones count from
        now and are looked at at once (``next_fire_at`` is now).
        """

    @abstractmethod
    def drop_schedules(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Remove schedules; those that were there. Their fires stay until they are purged."""

    @abstractmethod
    def due(self, limit: int, *, now: datetime | None = None) -> Due:
        """Enabled schedules of cluster scope whose ``next_fire_at`` is not after now, if their definition is enabled too."""

    @abstractmethod
    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        """Move schedules on, each only from where it was read (law 16); the lost ids."""

    @abstractmethod
    def note_fires(self, fires: Sequence[Fired], *, now: datetime | None = None) -> frozenset[FireKey]:
        """Write fires down; the keys of those that were not there before."""

    @abstractmethod
    def fires(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        limit: int = 100,
        before: datetime | None = None,
    ) -> list[Fired]:
        """A schedule's fires with a ``fire_at`` before that, the newest first; of one instant by scope key."""

    @abstractmethod
    def last_fires(self, ids: Collection[UUID], scope_key: str) -> dict[UUID, Fired]:
        """The newest fire of each of these schedules under a scope key; those without one are left out."""

    @abstractmethod
    def active_jobs(self, ids: Collection[UUID], *, newest: int = 10) -> list[ActiveJob]:
        """The jobs that have not ended among those of the ``newest`` fires that became jobs, of each of these schedules; by
        schedule and fire, the oldest first.
        """

    @abstractmethod
    def purge_fires(self, before: datetime, *, limit: int) -> int:
        """Remove fires before then, the oldest first, but for the newest of each scope key of a schedule that is still there;
        how many.
        """
