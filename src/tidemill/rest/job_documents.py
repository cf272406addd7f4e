"""Job documents, masked according to the caller's role."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tidemill.client.documents import job_document, log_document
from tidemill.domain.job import JobRow, LogEntry
from tidemill.domain.masks import masked_name, masked_unique_key
from tidemill.rest.api_request import ApiRequest

PROGRESS = (
    "id", "status", "reason", "progress", "progress_percent", "updated_at", "message", "step", "total", "stage", "eta",
    "attempt", "max_attempts",
)  # fmt: skip

RECEIPT = ("id", "task", "status", "tenant", "queue", "run_at", "created_at", "correlation_id")
"""Fields that a caller without a key sees of the created job."""

_USERS = ("args", "value", "output", "metadata", "headers")


def shown(request: ApiRequest, job: JobRow, now: datetime | None = None) -> dict[str, Any]:
    """Return the document of a job, with secrets masked for viewers."""
    shown_job = request.cleared(job) if request.identity.grants else job
    document: dict[str, Any] = job_document(shown_job, now or request.now())
    if not request.sees_secrets:
        _mask(request, document)
    return document


def all_shown(request: ApiRequest, jobs: Iterable[JobRow]) -> list[dict[str, Any]]:
    """Return the documents of several jobs. The time is read once for all of them."""
    now = request.now()
    documents: list[dict[str, Any]] = [job_document(request.cleared(job), now) for job in jobs]
    if not request.sees_secrets:
        for document in documents:
            _mask(request, document)
    return documents


def _mask(request: ApiRequest, document: dict[str, Any]) -> None:
    for name in _USERS:
        document[name] = request.masked(document[name])
    document["unique_key"] = masked_unique_key(document["unique_key"])
    document["limits"] = [masked_name(name) for name in document["limits"]]


def progress(request: ApiRequest, job: JobRow) -> dict[str, Any]:
    """Return the progress of a job."""
    document = job_document(job, request.now())
    return {name: document[name] for name in PROGRESS}


def log_line(request: ApiRequest, entry: LogEntry) -> dict[str, Any]:
    """Return the document of a log line, with secrets masked for viewers."""
    document: dict[str, Any] = log_document(entry)
    document["details"] = {} if request.hides_arguments else request.masked(document["details"])
    return document
