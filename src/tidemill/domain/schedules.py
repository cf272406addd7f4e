"""Stored definitions, schedules and fires, as plain values.

A **definition** is a tenant's versioned configuration of a task under a key. A **schedule** defines when jobs of a definition or a
task are created. A **fire** is one instant of one schedule, and its outcome. Rules (triggers, calendars) stay in their stored form,
so that one rule that this code cannot read does not affect the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.states import JobState

CLUSTER_KEY = ""
"""The scope key of fires that happen once per cluster; otherwise a node's name, or a runner's place (``runner_place``)."""

_RUNNER = re.compile(r"/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def runner_place(node: str, worker: UUID) -> str:
    """The name of one runner process: its node and its worker's id, which is new at every start."""
    return f"{node}/{worker}"


def is_runner_place(scope_key: str) -> bool:
    """Whether a fire's scope key names a runner process.

    >>> is_runner_place("blue/01890a5d-ac96-774b-bcce-b302099a8057"), is_runner_place("blue/green")
    (True, False)
    """
    return _RUNNER.search(scope_key) is not None


class Scope(StrEnum):
    """Where a fire happens."""

    CLUSTER = "cluster"  #: once
    INSTANCE = "instance"  #: on every node
    PROCESS = "process"  #: in every runner process of every node


class Source(StrEnum):
    """The origin of a schedule."""

    CODE = "code"  #: declared by an app, and reconciled with it
    STORED = "stored"  #: created at run time


class FireOutcome(StrEnum):
    """The outcome of a fire."""

    FIRED = "fired"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Definition:
    """A stored configuration of a task. ``version`` counts the writes; 0 means never stored.

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
    """A definition as of one write."""

    definition: Definition
    created_at: datetime
    created_by: str | None


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A stored schedule. ``revision`` counts the writes of its rule, not its fires; 0 means never stored.

    Fires count from the later of ``since_at`` (when the rule was saved or resumed) and ``last_fire_at``. ``options`` apply to
    its jobs; ``note`` explains why it is disabled, unless a person disabled it.
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
    """The new position of a schedule, valid if the schedule was not changed or advanced since it was read."""

    id: UUID
    revision: int
    expected_fire_at: datetime | None  #: the ``last_fire_at`` that was read
    last_fire_at: datetime | None
    next_fire_at: datetime | None


class FireKey(NamedTuple):
    """The identity of a fire, which is recorded at most once."""

    schedule_id: UUID
    fire_at: datetime
    scope_key: str = CLUSTER_KEY


class Fired(NamedTuple):
    """A fire and its outcome: a job, or the reason why it was skipped."""

    schedule_id: UUID
    fire_at: datetime
    scope_key: str = CLUSTER_KEY
    tenant: str = DEFAULT_TENANT
    job_id: UUID | None = None
    reason: str | None = None
    created_at: datetime | None = None

    @property
    def key(self) -> FireKey:
        """The identity of this fire."""
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
    """Schedules that are due, the longest due first, and the next fire of the others."""

    schedules: list[ScheduleRow]
    next_fire_at: datetime | None
