"""Copies of mutable values, so that the store and its callers never share them.

Mappings from users are stored as JSON in every other store; here they are converted to JSON and back in both directions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.domain.job import NO_DETAILS, Details, JobRow, LogEntry


def json_copy(value: object) -> Any:
    """A copy of a value after a JSON round trip (tuples become lists); ``TypeError`` for a value that JSON cannot hold.

    >>> json_copy({"size": (1, 2)})
    {'size': [1, 2]}
    """
    if value is None or value == {}:
        return None if value is None else {}  # by far the most frequent ones
    return json.loads(json.dumps(value, default=_as_dict))


def _as_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")


def kept_details(details: Details) -> Details:
    """Details to store; empty details share one object."""
    return NO_DETAILS if details == NO_DETAILS else _details(details)


def shown_job(job: JobRow) -> JobRow:
    """A job to return to a caller."""
    return replace(job, details=_details(job.details))


def kept_line(entry: LogEntry) -> LogEntry:
    """A log line to store or to return."""
    return entry if entry.details is None else replace(entry, details=json_copy(entry.details))


def _details(details: Details) -> Details:
    return replace(
        details,
        metadata=json_copy(details.metadata),
        headers=json_copy(details.headers),
        options=json_copy(details.options),
    )
