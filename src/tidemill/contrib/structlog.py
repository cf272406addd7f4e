"""A structlog processor that adds the fields of the running job."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from tidemill.engine.log_records import FIELDS, field_of
from tidemill.tasks.ambient import current_job


def add_job_fields(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add ``job_id``, ``task``, ``attempt`` and the other fields of the job that this event was logged in.

    ``structlog.configure(processors=[add_job_fields, structlog.processors.JSONRenderer()])``. The event's own values
    win, and outside of jobs nothing is added.
    """
    context = current_job()
    if context is not None:
        for name in FIELDS:
            value = field_of(context, name)
            if value is not None:
                event.setdefault(name, value)
    return event
