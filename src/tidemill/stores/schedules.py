"""The part of the store contract for definitions, schedules, fires and releases.

Its laws, in addition to those of ``stores.base``:

15. **A write of a definition or of a schedule's rule is a compare-and-set** of its ``version`` or ``revision``, which rises by one
    with each write. A key is held by one existing definition of a tenant, and a schedule's key by one schedule of a tenant.
16. **A schedule advances only from the position that was read**: same revision, same last fire, enabled, and not of a definition
    that is disabled or deleted. If it was disabled first, it does not advance.
17. **A fire exists once**: ``note_fires`` returns the new ones, and only for those a job may be enqueued, in the same
    transaction.
24. **A write of a release record is a compare-and-set** of its ``revision``, which rises by one with each write. An app has one
    record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.releases import Deploy, ReleaseRecord
from tidemill.domain.schedules import (
    ActiveJob,
    Advance,
    Definition,
    DefinitionVersion,
    Due,
    Fired,
    FireKey,
    ScheduleRow,
    Scope,
)


class DefinitionStore(ABC):
    """Stored configurations of tasks."""

    @abstractmethod
    def put_definition(
        self, definition: Definition, *, by: str | None = None, now: datetime | None = None
    ) -> Definition | None:
        """Write a definition over the version that it names, and keep all versions. Returns it as stored.

        Version 0 creates one: None while another definition of the tenant has its key. Otherwise None if the stored version
        differs, if it is deleted or belongs to another tenant, or if another definition has the key. ``created_at``, ``created_by``
        and ``enabled`` of a stored one are unchanged.
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
        """The matching definitions, by tenant and key; with ``deleted`` also deleted ones, after the existing ones and the latest
        deletion first.
        """

    @abstractmethod
    def definition_versions(self, id: UUID, *, tenant: str) -> list[DefinitionVersion]:
        """Every version of a definition, the oldest first."""

    @abstractmethod
    def enable_definitions(
        self, ids: Collection[UUID], *, tenant: str, enabled: bool, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Enable or disable existing definitions. Returns those that changed. Their schedules get a new revision and count from
        now: they are evaluated at once (``next_fire_at`` is now), or have no next fire while the definition is disabled.
        """

    @abstractmethod
    def drop_definitions(
        self, ids: Collection[UUID], *, tenant: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Mark definitions as deleted and delete their schedules. Returns those that changed. Their keys become free."""


class ScheduleStore(ABC):
    """Stored schedules."""

    @abstractmethod
    def put_schedules(
        self, schedules: Sequence[ScheduleRow], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Write schedules, each over the revision that it names (0: a new one), counting from now. Returns the lost ids.

        A schedule is lost if its stored revision differs, if it was deleted or belongs to another tenant, if its key is taken (the
        first one in a batch to name a free key gets it), or if its definition is not an existing one of the tenant. A written
        schedule has the next revision, ``updated_at`` and ``since_at`` of now, and the given ``next_fire_at``; ``created_at`` and
        ``last_fire_at`` of a stored one are unchanged.
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
    ) -> list[ScheduleRow]:
        """The matching schedules, by tenant and key."""

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
        """Enable or disable schedules, with a note on why. Returns those that changed, which get a new revision. Enabled ones
        count from now and are evaluated at once (``next_fire_at`` is now).
        """

    @abstractmethod
    def drop_schedules(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete schedules. Returns those that existed. Their fires remain until they are purged."""

    @abstractmethod
    def due(self, limit: int, *, now: datetime | None = None) -> Due:
        """Enabled schedules of cluster scope whose ``next_fire_at`` is not after now, if their definition is enabled too."""

    @abstractmethod
    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        """Advance schedules, each only from the position that was read (law 16). Returns the lost ids."""


class FireStore(ABC):
    """Recorded fires of schedules, and the jobs they became."""

    @abstractmethod
    def note_fires(self, fires: Sequence[Fired], *, now: datetime | None = None) -> frozenset[FireKey]:
        """Record fires. Returns the keys of those that were new."""

    @abstractmethod
    def fires(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        limit: int = 100,
        before: datetime | None = None,
    ) -> list[Fired]:
        """A schedule's fires with a ``fire_at`` before this instant, newest first; at the same instant by scope key."""

    @abstractmethod
    def last_fires(self, ids: Collection[UUID], scope_key: str) -> dict[UUID, Fired]:
        """The newest fire of each of these schedules under a scope key; schedules without one are omitted."""

    @abstractmethod
    def active_jobs(self, ids: Collection[UUID], *, newest: int = 10) -> list[ActiveJob]:
        """The unfinished jobs among those of the ``newest`` fires that became jobs, of each of these schedules; by schedule and
        fire, oldest first.
        """

    @abstractmethod
    def purge_fires(self, before: datetime, *, limit: int) -> int:
        """Delete fires before this instant, oldest first, except the newest of each scope key of an existing schedule. Returns
        the number.
        """


class ReleaseStore(ABC):
    """The deployment that last wrote an app's declared schedules, and the first start of every release."""

    @abstractmethod
    def release_of(self, app: str) -> ReleaseRecord | None:
        """The record of this app, if there is one."""

    @abstractmethod
    def put_release(self, record: ReleaseRecord, *, now: datetime | None = None) -> bool:
        """Write the record over the revision that it names (0: a new one), seen now; False if the stored revision differs."""

    @abstractmethod
    def note_deploy(self, app: str, release: str, *, now: datetime | None = None) -> bool:
        """Record that a release of an app has started; False if it had started before."""

    @abstractmethod
    def deploys(self, *, limit: int = 20) -> list[Deploy]:
        """The first starts of releases, latest first."""
