"""Archive policies, and the document format of archived jobs.

A job, its executions and its logs become one JSON document with a fingerprint of its canonical text. The original is deleted
only after the copy was read back and its fingerprint was recomputed and matched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.domain.durations import Duration, set_durations
from tidemill.domain.job import Details, ErrorInfo, Execution, JobRow, LogEntry, Progress
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import BadSettings

DEFAULT_AGE = timedelta(hours=720)
DEFAULT_BATCH = 500
DEFAULT_TIER = "archive"


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """Jobs in ``states`` (of ``tasks``, or of any) go to ``tier`` once they ended longer than ``max_age`` ago."""

    name: str
    states: frozenset[JobState] = ENDED
    tasks: frozenset[str] = frozenset()
    max_age: timedelta = DEFAULT_AGE
    tier: str = DEFAULT_TIER
    batch: int = DEFAULT_BATCH

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            states: frozenset[JobState] = ENDED,
            tasks: frozenset[str] = frozenset(),
            max_age: Duration = DEFAULT_AGE,
            tier: str = DEFAULT_TIER,
            batch: int = DEFAULT_BATCH,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, f"archive policy {self.name}", max_age=self.max_age)
        if not self.states <= ENDED:
            raise BadSettings(f"archive policy {self.name}: only ended jobs can be archived", name=self.name)
        if self.batch < 1 or self.max_age < timedelta(0):
            raise BadSettings(
                f"archive policy {self.name}: give a batch of 1 or more and no negative max_age",
                name=self.name,
            )


@dataclass(frozen=True, slots=True)
class ArchivedJob:
    """An archived job; the fields other than ``document`` only serve to find it."""

    id: UUID
    tenant: str
    task: str
    queue: str
    state: JobState
    token: int
    created_at: datetime
    finished_at: datetime
    correlation_id: str | None
    parent_id: UUID | None
    tier: str
    policy: str
    document: str
    fingerprint: str
    archived_at: datetime | None = None

    @property
    def sound(self) -> bool:
        """Whether the document matches its fingerprint."""
        return fingerprint(self.document) == self.fingerprint


DEFAULT_POLICIES = (
    ArchivePolicy("completed", frozenset({JobState.COMPLETED})),
    ArchivePolicy("failed", frozenset({JobState.FAILED, JobState.TIMED_OUT})),
    ArchivePolicy("cancelled", frozenset({JobState.CANCELLED})),
    ArchivePolicy("dead_lettered", frozenset({JobState.DEAD_LETTERED})),
)
"""The default policies: every ended job is archived after thirty days."""


def believed(
    documents: Sequence[ArchivedJob], copies: Sequence[ArchivedJob]
) -> tuple[list[ArchivedJob], list[ArchivedJob]]:
    """The documents whose copy matches what was written, and those whose copy is missing or differs."""
    kept = {copy.id: copy for copy in copies}
    sound: list[ArchivedJob] = []
    doubtful: list[ArchivedJob] = []
    for document in documents:
        copy = kept.get(document.id)
        whole = copy is not None and copy.sound and copy.fingerprint == document.fingerprint
        (sound if whole else doubtful).append(document)
    return sound, doubtful


def read_policies(policies: Sequence[ArchivePolicy]) -> tuple[ArchivePolicy, ...]:
    """An app's policies, checked for type and unique names."""
    for policy in policies:
        if not isinstance(policy, ArchivePolicy):
            raise BadSettings(f"archive: {policy!r} is not an ArchivePolicy", setting="archive")
    names = [policy.name for policy in policies]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadSettings(f"archive: there are two policies named {twice!r}", setting="archive")
    return tuple(policies)


def fingerprint(document: str) -> str:
    """SHA-256 of the document's text."""
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()


def archive_document(
    job: JobRow, executions: Sequence[Execution], logs: Sequence[LogEntry], *, tier: str, policy: str
) -> ArchivedJob:
    """The document of one ended job with its executions and logs."""
    if job.finished_at is None or job.state not in ENDED:
        raise BadSettings(f"job {job.id} is {job.state}; only ended jobs are archived", id=job.id)
    body = {
        "format": 1,
        "job": {name: value for name, value in _fields(job).items() if name != "archived_at"},
        "executions": [_fields(execution) for execution in executions],
        "logs": [_fields(entry) for entry in logs],
    }
    text = json.dumps(body, default=_plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return ArchivedJob(
        id=job.id,
        tenant=job.tenant,
        task=job.task,
        queue=job.queue,
        state=job.state,
        token=job.token,
        created_at=job.created_at,
        finished_at=job.finished_at,
        correlation_id=job.details.correlation_id,
        parent_id=job.details.parent_id,
        tier=tier,
        policy=policy,
        document=text,
        fingerprint=fingerprint(text),
    )


def _fields(value: JobRow | Execution | LogEntry | Details | ErrorInfo | Progress) -> dict[str, object]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: object) -> object:
    match value:
        case Details() | ErrorInfo() | Progress():
            return _fields(value)
        case Mapping():
            return dict(value)
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case frozenset() | set():
            return sorted(str(item) for item in value)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be stored in an archive document")
