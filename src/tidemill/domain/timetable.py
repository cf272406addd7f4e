"""Definitions, schedules and fires as they are stored: plain values, without a clock and without judgement.

A **definition** is a tenant's own configuration of a task under a key, with versions. A **schedule** says when jobs are made,
of a definition or of a task itself. A **fire** is one instant of one schedule, and what became of it. Rules (triggers, calendars)
are kept as the data they are stored as, so that one that this code cannot read does no harm to the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.states import JobState

CLUSTER_KEY = ""
"""The scope key of fires that happen once in the whole cluster; others are a node's name."""


class Scope(StrEnum):
    """Where a fire happens."""

    CLUSTER = "cluster"  #: once
    INSTANCE = "instance"  #: on every node


class Source(StrEnum):
    """Where a schedule comes from."""

    CODE = "code"  #: declared by an app, and reconciled with it
    STORED = "stored"  #: made at run time


class FireOutcome(StrEnum):
    """What became of a fire."""

    FIRED = "fired"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Definition:
    """A stored configuration of a task. ``version`` counts the writes; 0 is one that was never stored.

    ``settings`` are options for its jobs, as ``using`` takes them, in plain data; ``args`` is a JSON object.
    """

    id: UUID
    key: str
    task: str
    tenant: str = DEFAULT_TENANT
    name: str = ""
    version: int = 0
    args: str = "{}"
    settings: Mapping[str, object] = field(default_factory=dict)
    notifications: Mapping[str, object] = field(default_factory=dict)
    owner: str | None = None
    enabled: bool = True
    created_at: datetime | None = None
    created_by: str | None = None
    updated_at: datetime | None = None
    deleted_at: datetime | None = None


class DefinitionVersion(NamedTuple):
    """What a definition was from one write on."""

    definition: Definition
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A stored schedule. ``revision`` counts the writes of its rule, not its fires; 0 is one that was never stored.

    Fires count from the later of ``since_at`` (when the rule was written, or resumed) and ``last_fire_at``. ``options`` are
    what its jobs are enqueued with; ``note`` says why it is not enabled, where that is not by hand.
    """

    id: UUID
    key: str
    task: str
    trigger: Mapping[str, object]
    tenant: str = DEFAULT_TENANT
    definition_id: UUID | None = None
    timezone: str = "UTC"
    calendar: Mapping[str, object] | None = None
    exclude: Mapping[str, object] | None = None
    args: str = "{}"
    options: Mapping[str, object] = field(default_factory=dict)
    misfire: str | Mapping[str, object] = "once"
    overlap: str = "skip"
    scope: Scope = Scope.CLUSTER
    source: Source = Source.STORED
    enabled: bool = True
    note: str | None = None
    revision: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    since_at: datetime | None = None
    last_fire_at: datetime | None = None
    next_fire_at: datetime | None = None


class Advance(NamedTuple):
    """A schedule moves on, if nobody changed or advanced it since it was read."""

    id: UUID
    revision: int
    expected_fire_at: datetime | None  #: the ``last_fire_at`` that was read
    last_fire_at: datetime | None
    next_fire_at: datetime | None


class FireKey(NamedTuple):
    """What there is at most once, ever."""

    schedule_id: UUID
    fire_at: datetime
    scope_key: str = CLUSTER_KEY


class Fired(NamedTuple):
    """A fire, and what became of it: a job, or nothing for a reason."""

    schedule_id: UUID
    fire_at: datetime
    scope_key: str = CLUSTER_KEY
    tenant: str = DEFAULT_TENANT
    job_id: UUID | None = None
    reason: str | None = None
    created_at: datetime | None = None

    @property
    def key(self) -> FireKey:
        """What makes it this fire and no other."""
        return FireKey(self.schedule_id, self.fire_at, self.scope_key)

    @property
    def outcome(self) -> FireOutcome:
        """Whether it became a job."""
        return FireOutcome.FIRED if self.job_id is not None else FireOutcome.SKIPPED


class ActiveJob(NamedTuple):
    """A job of a schedule that has not ended."""

    schedule_id: UUID
    job_id: UUID
    tenant: str
    state: JobState


class Due(NamedTuple):
    """Schedules whose next fire has come, the longest due first, and when the next one of the others is."""

    schedules: list[Schedule]
    next_fire_at: datetime | None
