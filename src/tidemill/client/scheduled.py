"""What schedules and definitions share at the door: the schedule in a user's hand, tenants, stores, and the way to a thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from tidemill.client.acting import note
from tidemill.client.core import Client
from tidemill.client.tellers import Teller
from tidemill.domain.firing import Rules, read_rules
from tidemill.domain.requests import Facts as TaskFacts
from tidemill.domain.timetable import Schedule as Facts
from tidemill.domain.timetable import Scope, Source
from tidemill.errors import TidemillError
from tidemill.tasks.ambient import current_tenant

OWN = ("defaults", "app", "limits")
"""What we keep among a schedule's options that is not an option of its jobs."""

P = ParamSpec("P")
R = TypeVar("R")


class Schedule:
    """A schedule as it was last seen."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._rules: Rules | None = None
        self.broken: str | None = None  #: why it cannot be read here, and so does not fire
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
        """When it fires; the stored data where that cannot be read here."""
        return self.facts.trigger if self._rules is None else self._rules.trigger

    @property
    def words(self) -> str:
        """When it fires, in words."""
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
        """Why it is not enabled, where somebody said."""
        return self.facts.note

    @property
    def args(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.facts.args)
        return found

    @property
    def options(self) -> dict[str, object]:
        """What its jobs are asked for with."""
        return {name: value for name, value in self.facts.options.items() if name not in OWN}

    @property
    def app(self) -> str | None:
        """The app whose code declares it."""
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
        """When it fires next; None while it is not enabled."""
        return self.facts.next_fire_at if self.enabled else None

    def __repr__(self) -> str:
        return f"<Schedule {self.key} of {self.task}: {self.words}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and other.facts == self.facts

    def __hash__(self) -> int:
        return hash(self.id)


class Tenanted(Teller):
    """A face of the client whose verbs take a tenant."""

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
        """Write down what was done, in the transaction that does it."""
        note(self._store, action, subject, tenant, before=before, after=after, now=self._pin)

    async def _await(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """A verb on a thread, for the tenant that surrounds the caller."""
        kwargs["tenant"] = self._tenant(kwargs.get("tenant"))  # type: ignore[arg-type]
        return await super()._await(verb, *args, **kwargs)


def named(key: str | UUID) -> dict[str, Any]:
    """A key or an id, as a store is asked for it."""
    if isinstance(key, UUID):
        return {"ids": [key]}
    try:
        return {"ids": [UUID(key)]}
    except (ValueError, AttributeError, TypeError):
        return {"keys": [key]}


def task_facts_of(client: Client, task: str) -> TaskFacts | None:
    """What this app knows of a task."""
    return client.registry.get(task).facts if task in client.registry else None
