"""Copies of the mutable parts of values, so that nobody outside can reach into the store, nor the store into callers.

What users hand us as mappings is JSON in every other store; here it becomes JSON on its way in and again on its way out.
It must not know about states, locks or verbs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.domain.job import NO_DETAILS, Details, Job, LogEntry


def kept(value: object) -> Any:
    """A copy of a value as JSON gives it back (tuples are lists then); ``TypeError`` for what JSON cannot hold.

    >>> kept({"size": (1, 2)})
    {'size': [1, 2]}
    """
    return json.loads(json.dumps(value, default=_as_dict))


def _as_dict(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept as JSON")


def kept_details(details: Details) -> Details:
    """Details to store: the common empty ones are one object for all."""
    return NO_DETAILS if details == NO_DETAILS else _details(details)


def shown_job(job: Job) -> Job:
    """A job to hand out."""
    return replace(job, details=_details(job.details))


def kept_line(entry: LogEntry) -> LogEntry:
    """A log line to store or to hand out."""
    return entry if entry.details is None else replace(entry, details=kept(entry.details))


def _details(details: Details) -> Details:
    return replace(
        details,
        metadata=kept(details.metadata),
        headers=kept(details.headers),
        options=kept(details.options),
    )
