"""The contents of archived documents: jobs, executions and log lines."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tidemill.domain.job import Execution, JobRow, LogEntry
from tidemill.domain.retention import ArchivedJob, RestoredJob

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@lru_cache(maxsize=3)
def _reader(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # imported here so that declaring a task does not load pydantic

    return TypeAdapter(kind)


def read_archived(kept: ArchivedJob) -> JobRow:
    """Return the job as it was when it left the live tables, with ``archived_at`` and ``tier`` set."""
    found: JobRow = _reader(JobRow).validate_python(json.loads(kept.document)["job"])
    return replace(found, archived_at=kept.archived_at, tier=kept.tier)


def read_executions(kept: ArchivedJob) -> list[Execution]:
    """Return every attempt at the job."""
    found: list[Execution] = _reader(list[Execution]).validate_python(json.loads(kept.document)["executions"])
    return found


def read_logs(kept: ArchivedJob) -> list[LogEntry]:
    """Return the log lines of the job, in order."""
    found: list[LogEntry] = _reader(list[LogEntry]).validate_python(json.loads(kept.document)["logs"])
    return found


def read_restored(kept: ArchivedJob) -> RestoredJob:
    """Return everything that the document contains, for the live tables."""
    job = replace(read_archived(kept), archived_at=None, tier=None)
    return RestoredJob(job, tuple(read_executions(kept)), tuple(read_logs(kept)))
