"""Events that a job publishes in a child process, as messages to its runner."""

from __future__ import annotations

from tidemill.engine import sanitize
from tidemill.engine.frames import Data, id_from_data, id_to_data, instant_from_data, instant_to_data
from tidemill.tasks.events import Event


def event_to_data(event: Event) -> Data:
    """Encode an event. Values that JSON does not support become text."""
    return {
        "name": str(event.name),
        "at": instant_to_data(event.at),
        "job_id": id_to_data(event.job_id),
        "task": event.task,
        "tenant": event.tenant,
        "state": event.state,
        "data": sanitize.plain(event.data),
    }


def event_from_data(data: Data) -> Event:
    """Decode an event."""
    at = instant_from_data(data["at"])
    if at is None:
        raise ValueError("an event needs a time")
    return Event(
        str(data["name"]),
        at,
        id_from_data(data["job_id"]),
        data["task"],
        data["tenant"],
        data["state"],
        dict(data["data"]),
    )
