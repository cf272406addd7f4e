"""The contents of archived documents: jobs, executions and log lines."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.retention import ArchivedJob, RestoredJob
from tidemill.domain.streams import StreamEntry

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@lru_cache(maxsize=3)
def _reader(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # imported here so that declaring a task does not load pydantic

    return TypeAdapter(kind)


def read_archived(copy: ArchivedJob) -> JobRow:
    """Return the job as it was when it left the live tables, with ``archived_at`` and ``tier`` set."""
    value: JobRow = _reader(JobRow).validate_python(json.loads(copy.document)["job"])
    return replace(value, archived_at=copy.archived_at, tier=copy.tier)


def read_executions(copy: ArchivedJob) -> list[Execution]:
    """Return every attempt at the job."""
    value: list[Execution] = _reader(list[Execution]).validate_python(json.loads(copy.document)["executions"])
    return value


def read_logs(copy: ArchivedJob) -> list[LogEntry]:
    """Return the log lines of the job, in order."""
    value: list[LogEntry] = _reader(list[LogEntry]).validate_python(json.loads(copy.document)["logs"])
    return value


def read_streams(copy: ArchivedJob) -> list[StreamEntry]:
    """Return the items of the job's streams, by name and in order."""
    rows: list[tuple[str, int, int, str]] = json.loads(copy.document).get("streams", [])
    return [StreamEntry(copy.id, number, None, name, index, data) for name, number, index, data in rows]


def read_restored(copy: ArchivedJob) -> RestoredJob:
    """Return everything that the document contains, for the live tables."""
    job = replace(read_archived(copy), archived_at=None, tier=None)
    return RestoredJob(job, tuple(read_executions(copy)), tuple(read_logs(copy)), tuple(read_streams(copy)))
