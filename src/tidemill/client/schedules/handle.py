"""The schedule handle, the base class of the schedule and definition APIs, and their audit entries."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from tidemill.client._base import StoreApi
from tidemill.client.access import Facts as Words
from tidemill.client.access import difference, note
from tidemill.client.core import Client
from tidemill.domain.job_requests import Facts as TaskFacts
from tidemill.domain.schedule_fires import FireRules, read_rules
from tidemill.domain.schedules import Definition, ScheduleRow, Scope, Source
from tidemill.domain.schedules import ScheduleRow as Facts
from tidemill.domain.triggers.every import Manual
from tidemill.errors import DefinitionBusy, DefinitionDisabled, SchedulePaused, TidemillError
from tidemill.tasks.ambient import current_tenant

OWN = ("defaults", "app", "limits")
"""Internal entries in a schedule's options that are not options of its jobs."""

P = ParamSpec("P")
R = TypeVar("R")


class Schedule:
    """A schedule as it was last read from the store."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._rules: FireRules | None = None
        self.broken: str | None = (
            None  #: why this process cannot read the schedule, which therefore does not fire
        )
        try:
            self._rules = read_rules(facts)
        except TidemillError as error:
            self.broken = str(error)

    @property
    def id(self) -> UUID:
        return self.facts.id

    @property
    def key(self) -> str:
        return self.facts.key

    @property
    def task(self) -> str:
        return self.facts.task

    @property
    def tenant(self) -> str:
        return self.facts.tenant

    @property
    def trigger(self) -> Any:
        """The trigger; the stored data if this process cannot read it."""
        return self.facts.trigger if self._rules is None else self._rules.trigger

    @property
    def words(self) -> str:
        """The trigger as a text."""
        return "cannot be read here" if self._rules is None else self._rules.trigger.explain()

    @property
    def timezone(self) -> str:
        return self.facts.timezone

    @property
    def calendar(self) -> Any:
        return None if self._rules is None else self._rules.calendar

    @property
    def exclude(self) -> Any:
        return None if self._rules is None else self._rules.exclude

    @property
    def misfire(self) -> Any:
        return self.facts.misfire if self._rules is None else self._rules.misfire

    @property
    def overlap(self) -> str:
        return self.facts.overlap

    @property
    def scope(self) -> Scope:
        return self.facts.scope

    @property
    def source(self) -> Source:
        return self.facts.source

    @property
    def enabled(self) -> bool:
        return self.facts.enabled

    @property
    def note(self) -> str | None:
        """Why the schedule is disabled, if a reason was given."""
        return self.facts.note

    @property
    def args(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.facts.args)
        return found

    @property
    def options(self) -> dict[str, object]:
        """The options of its jobs."""
        return {name: value for name, value in self.facts.options.items() if name not in OWN}

    @property
    def app(self) -> str | None:
        """The app whose code declares the schedule."""
        found = self.facts.options.get("app")
        return None if found is None else str(found)

    @property
    def definition_id(self) -> UUID | None:
        return self.facts.definition_id

    @property
    def last_fire_at(self) -> datetime | None:
        return self.facts.last_fire_at

    @property
    def next_fire_at(self) -> datetime | None:
        """The next fire time; None while the schedule is disabled."""
        return self.facts.next_fire_at if self.enabled else None

    def __repr__(self) -> str:
        return f"<Schedule {self.key} of {self.task}: {self.words}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and other.facts == self.facts

    def __hash__(self) -> int:
        return hash(self.id)


class TenantApi(StoreApi):
    """Base class of client APIs whose methods take a tenant."""

    def _tenant(self, given: str | None) -> str:
        return given or current_tenant() or self._client.tenant

    def _note(
        self,
        action: str,
        subject: str,
        tenant: str,
        before: Mapping[str, object] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> None:
        """Add an audit record, in the transaction of the action itself."""
        note(self._store, action, subject, tenant, before=before, after=after, now=self._pin)

    async def _await(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method in a thread, for the caller's current tenant."""
        kwargs["tenant"] = self._tenant(kwargs.get("tenant"))  # type: ignore[arg-type]
        return await super()._await(verb, *args, **kwargs)


def named(key: str | UUID) -> dict[str, Any]:
    """Return the store's query arguments for a key or an id."""
    if isinstance(key, UUID):
        return {"ids": [key]}
    try:
        return {"ids": [UUID(key)]}
    except (ValueError, AttributeError, TypeError):
        return {"keys": [key]}


def definition_refusal(definition: Definition | None) -> TidemillError | None:
    """Return the error for triggering a disabled definition; None if it is enabled."""
    if definition is None or definition.enabled:
        return None
    return DefinitionDisabled(
        f"definition {definition.key!r} of tenant {definition.tenant} is disabled; enable it, or trigger it with force",
        key=definition.key,
        tenant=definition.tenant,
    )


def busy(definition: Definition, holder: UUID) -> DefinitionBusy:
    """Return the error for triggering a definition that refuses a second job."""
    return DefinitionBusy(
        f"definition {definition.key!r} of tenant {definition.tenant} refuses a second job, and job {holder} has not ended; "
        "wait for it, or save the definition with on_busy='queue'",
        key=definition.key,
        tenant=definition.tenant,
        id=holder,
    )


def trigger_refusal(facts: Facts, definition: Definition | None) -> TidemillError | None:
    """Return why a schedule refuses a manual trigger; None if it does not.

    A pause stops the automatic fires of a schedule, and an operator may still trigger it. A schedule with a manual
    trigger has no other fires that a pause could stop.
    """
    if facts.trigger.get("kind") == Manual.kind and not facts.enabled:
        return SchedulePaused(
            f"schedule {facts.key!r} of tenant {facts.tenant} is paused; resume it, or trigger it with force",
            key=facts.key,
            tenant=facts.tenant,
        )
    return definition_refusal(definition)


def task_facts_of(client: Client, task: str) -> TaskFacts | None:
    """Return what this app knows about a task; None for an unknown task."""
    return client.registry.get(task).facts if task in client.registry else None


_HIDDEN = ("args", "notifications", "options.metadata", "settings.metadata")


def schedule_changes(
    before: ScheduleRow | None, after: ScheduleRow | None
) -> tuple[Words | None, Words | None]:
    """Return the values that differ between two states of a schedule, before and after."""
    return difference(_schedule(before), _schedule(after), _HIDDEN)


def definition_changes(
    before: Definition | None, after: Definition | None
) -> tuple[Words | None, Words | None]:
    """Return the values that differ between two states of a definition, before and after."""
    return difference(_definition(before), _definition(after), _HIDDEN)


def _schedule(facts: ScheduleRow | None) -> Words | None:
    if facts is None:
        return None
    said = {name: value for name, value in facts.options.items() if name not in OWN}
    return {
        "id": str(facts.id),
        "task": facts.task,
        "definition_id": None if facts.definition_id is None else str(facts.definition_id),
        "trigger": dict(facts.trigger),
        "timezone": facts.timezone,
        "calendar": facts.calendar,
        "exclude": facts.exclude,
        "misfire": facts.misfire,
        "overlap": facts.overlap,
        "scope": facts.scope.value,
        "source": facts.source.value,
        "app": facts.options.get("app"),
        "enabled": facts.enabled,
        "note": facts.note,
        "args": json.loads(facts.args) or None,
        **_prefixed("options", said),
    }


def _definition(facts: Definition | None) -> Words | None:
    if facts is None:
        return None
    return {
        "id": str(facts.id),
        "task": facts.task,
        "name": facts.name or None,
        "owner": facts.owner,
        "version": facts.version,
        "enabled": facts.enabled,
        "args": json.loads(facts.args) or None,
        "notifications": dict(facts.notifications) or None,
        **_prefixed("settings", facts.settings),
    }


def _prefixed(name: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{name}.{key}": value for key, value in values.items()}
