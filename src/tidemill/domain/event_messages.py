"""Messages for other systems about events of jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID, uuid5

_NAMESPACE = UUID("6f2f0c1e-6a0b-5d3c-9a3e-0d9b7c3f4e21")
_LONGEST_KEY = 255  # bytes of a routing key in AMQP


class EventMessage(NamedTuple):
    """An event as other systems receive it. The id is the same whenever the event is sent again."""

    id: str
    event: str
    at: datetime
    job_id: UUID | None
    task: str | None
    tenant: str | None
    state: str | None
    data: str  #: a JSON object
    seq: int

    @property
    def routing_key(self) -> str:
        """The key for a topic exchange: the event, and for events of jobs the state and the task.

        A key is at most 255 bytes long; the task's name is cut there.
        """
        words = [self.event]
        if self.job_id is not None:
            words += [self.state or "-", self.task or "-"]
        return ".".join(words).encode()[:_LONGEST_KEY].decode(errors="ignore")

    @property
    def fields(self) -> dict[str, str]:
        """The values that are present, as text, for a stream whose entries have fields."""
        values = {**self._asdict(), "at": self.at.isoformat()}
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def body(self) -> str:
        """The message as one JSON object."""
        values: dict[str, object] = {
            **self._asdict(),
            "at": self.at.isoformat(),
            "job_id": None if self.job_id is None else str(self.job_id),
            "data": json.loads(self.data),
        }
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def event_message(
    seq: int,
    event: str,
    at: datetime,
    job_id: UUID | None,
    task: str | None,
    tenant: str | None,
    state: str | None,
    data: Mapping[str, object],
) -> EventMessage:
    """The message about an event that the store recorded under this number.

    A restored database gives out numbers again, so the id depends on the rest of the event too.
    """
    id = uuid5(_NAMESPACE, f"{seq} {event} {at.isoformat()} {job_id} {state}")
    text = json.dumps(dict(data), default=str, ensure_ascii=False)
    return EventMessage(str(id), event, at, job_id, task, tenant, state, text, seq)
