"""What a handle knows of its job: the facts as they were last seen, in the words of the API."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.client.core import Client
from tidemill.client.writing import snapshot
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.job import ErrorInfo, NewJob
from tidemill.domain.job import Job as Facts
from tidemill.domain.states import ENDED, JobState

R = TypeVar("R")


class Known(Generic[R]):
    """One request to run a task, as it was last seen."""

    def __init__(self, client: Client, seen: Facts | NewJob, store: str | None = None) -> None:
        self._client = client
        self._seen = seen
        self._store = store

    @property
    def _facts(self) -> Facts:
        """What was seen last; of a job that was just asked for, what was asked."""
        if isinstance(self._seen, NewJob):
            self._seen = snapshot(self._seen, self._client.clock.now())
        return self._seen

    @_facts.setter
    def _facts(self, facts: Facts) -> None:
        self._seen = facts

    @property
    def facts(self) -> Facts:
        """All of it, as the store told it."""
        return self._facts

    @property
    def id(self) -> UUID:
        return self._seen.id

    @property
    def task(self) -> str:
        return self._facts.task

    @property
    def status(self) -> JobState:
        return self._facts.state

    @property
    def tenant(self) -> str:
        return self._facts.tenant

    @property
    def queue(self) -> str:
        return self._facts.queue

    @property
    def priority(self) -> int:
        return self._facts.priority

    @property
    def args(self) -> dict[str, Any]:
        """The arguments as plain JSON data."""
        found: dict[str, Any] = json.loads(self._facts.args)
        return found

    @property
    def run_at(self) -> datetime:
        return self._facts.run_at

    @property
    def created_at(self) -> datetime:
        return self._facts.created_at

    @property
    def started_at(self) -> datetime | None:
        return self._facts.started_at

    @property
    def finished_at(self) -> datetime | None:
        return self._facts.finished_at

    @property
    def attempt(self) -> int:
        return self._facts.attempt

    @property
    def max_attempts(self) -> int:
        return self._facts.max_attempts

    @property
    def progress(self) -> float:
        """How far it is, 0 to 1."""
        return fraction_done(self._facts)

    @property
    def message(self) -> str | None:
        return None if self._facts.progress is None else self._facts.progress.message

    @property
    def step(self) -> int | None:
        return None if self._facts.progress is None else self._facts.progress.step

    @property
    def total(self) -> int | None:
        return None if self._facts.progress is None else self._facts.progress.total

    @property
    def stage(self) -> str | None:
        return None if self._facts.progress is None else self._facts.progress.stage

    @property
    def eta(self) -> datetime | None:
        """When it will end if it goes on as it did."""
        return eta_of(self._facts, self._client.clock.now())

    @property
    def value(self) -> R | None:
        """What the task returned; None until it is completed."""
        if self._facts.state is not JobState.COMPLETED:
            return None
        found: R | None = self._decoded()
        return found

    @property
    def error(self) -> ErrorInfo | None:
        return self._facts.error

    @property
    def reason(self) -> str | None:
        """Why it is where it is, in words."""
        return self._facts.reason

    @property
    def correlation_id(self) -> str:
        """What ties jobs together; a job that was given none is its own."""
        return self._facts.details.correlation_id or str(self._facts.id)

    @property
    def parent_id(self) -> UUID | None:
        return self._facts.details.parent_id

    @property
    def metadata(self) -> dict[str, object]:
        return dict(self._facts.details.metadata)

    @property
    def tags(self) -> tuple[str, ...]:
        return self._facts.details.tags

    @property
    def reference(self) -> tuple[str, str] | None:
        return self._facts.details.reference

    @property
    def ended(self) -> bool:
        """Whether it will not change any more by itself."""
        return self._facts.state in ENDED

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.task} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _decoded(self) -> Any:
        if self._facts.task in self._client.registry:
            return self._client.registry.get(self._facts.task).result.load(self._facts.result)
        return None if self._facts.result is None else json.loads(self._facts.result)
