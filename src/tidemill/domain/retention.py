"""Archive policies, and the document format of archived jobs.

A job, its executions and its logs become one JSON document with a fingerprint of its canonical text. The original is deleted
only after the copy was read back and its fingerprint was recomputed and matched.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tidemill.domain.durations import Duration, set_durations
from tidemill.domain.job import Details, ErrorInfo, Execution, JobRow, LogEntry, Progress
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.streams import StreamEntry
from tidemill.errors import BadSettings

DEFAULT_AGE = timedelta(hours=720)
DEFAULT_BATCH = 500
DEFAULT_TIER = "archive"

ARCHIVE = "archive"
"""The default target: the store of this name, or the job's own store if the app has none of this name."""

LIVE_TIER = "live"
"""The name of the live tables in reports and events."""

ANY = "*"


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions on an ended job. An empty set of tasks or tenants matches all; ``*`` in a task matches any text.

    >>> Selector(tasks=frozenset({"report.*"})).matches(JobState.COMPLETED, "report.daily", "default")
    True
    """

    states: frozenset[JobState] = ENDED
    tasks: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()

    def matches(self, state: JobState, task: str, tenant: str) -> bool:
        """Whether the selector applies to a job with this state, task and tenant."""
        return (
            state in self.states
            and (not self.tenants or tenant in self.tenants)
            and (not self.tasks or any(_task_matches(pattern, task) for pattern in self.tasks))
        )


def _task_matches(pattern: str, task: str) -> bool:
    if ANY not in pattern:
        return pattern == task
    return re.fullmatch(".*".join(map(re.escape, pattern.split(ANY))), task, re.DOTALL) is not None


class Position(NamedTuple):
    """A place in the order of ended jobs: by the end, then by the id."""

    ended_at: datetime
    id: UUID


LAST_ID = UUID(int=2**128 - 1)
"""Sorts after every id, so that ``Position(end, LAST_ID)`` includes all jobs that ended at that instant."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A range of ended jobs in one tier that one policy governs, in the order of their ends."""

    rule: Selector
    tier: str | None = None  #: None for the live tables
    exclude: tuple[Selector, ...] = ()  #: jobs of policies that take precedence
    after: Position | None = None  #: exclusive
    until: Position | None = None  #: inclusive
    limit: int = DEFAULT_BATCH
    members: bool = (
        False  #: with the jobs of ended flows, which otherwise leave the live tables with their flow
    )

    def contains(self, state: JobState, task: str, tenant: str, position: Position) -> bool:
        """Whether a job of this tier belongs to the selection, apart from the limit."""
        return (
            (self.after is None or position > self.after)
            and (self.until is None or position <= self.until)
            and self.rule.matches(state, task, tenant)
            and not any(other.matches(state, task, tenant) for other in self.exclude)
        )


@dataclass(frozen=True, slots=True)
class ArchivePolicy:
    """When ended jobs leave a tier, and where they go.

    It applies to jobs in ``states``, of ``tasks`` (names or patterns such as ``report.*``; empty: any) and of ``tenants``
    (empty: any). A job leaves once it ended longer than ``max_age`` ago, or once more than ``max_count`` jobs of this
    policy ended after it. It leaves the live tables, or the tier ``from_tier`` of an archive.

    The copy goes to ``tier`` in the store named ``to``. The default ``"archive"`` is the store of that name if the app
    has one, else the job's own store. ``to=None`` deletes the job without a copy. ``delete_from_source=False`` leaves the
    original where it is.
    """

    name: str
    states: frozenset[JobState] = ENDED
    tasks: frozenset[str] = frozenset()
    max_age: timedelta | None = DEFAULT_AGE
    tier: str = DEFAULT_TIER
    batch: int = DEFAULT_BATCH
    tenants: frozenset[str] = frozenset()
    max_count: int | None = None
    from_tier: str | None = None
    to: str | None = ARCHIVE
    delete_from_source: bool = True
    comment: str = ""

    if TYPE_CHECKING:

        def __init__(
            self,
            name: str,
            states: Iterable[JobState | str] = ENDED,
            tasks: Iterable[str] = frozenset(),
            max_age: Duration | None = DEFAULT_AGE,
            tier: str = DEFAULT_TIER,
            batch: int = DEFAULT_BATCH,
            tenants: Iterable[str] = frozenset(),
            max_count: int | None = None,
            from_tier: str | None = None,
            to: str | None = ARCHIVE,
            delete_from_source: bool = True,
            comment: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        label = f"archive policy {self.name}"
        set_durations(self, label, max_age=self.max_age)
        for name in ("states", "tasks", "tenants"):
            object.__setattr__(self, name, _names(label, name, getattr(self, name)))
        try:
            object.__setattr__(self, "states", frozenset(JobState(state) for state in self.states))
        except ValueError as error:
            raise BadSettings(f"{label}: {error}", name=self.name) from None
        if problem := self._problem():
            raise BadSettings(f"{label}: {problem}", name=self.name)

    def _problem(self) -> str | None:
        if not self.states or not self.states <= ENDED:
            return "only ended jobs can be archived; give one or more of " + ", ".join(sorted(ENDED))
        if self.batch < 1 or (self.max_age is not None and self.max_age < timedelta(0)):
            return "give a batch of 1 or more and no negative max_age"
        if self.max_age is None and self.max_count is None:
            return "give max_age, max_count or both"
        if self.max_count is not None and self.max_count < 0:
            return "max_count must be 0 or more"
        if self.to is None and not self.delete_from_source:
            return "to=None deletes jobs, so delete_from_source cannot be False"
        if self.from_tier is not None and self.to is not None and self.from_tier == self.tier:
            return f"it reads from tier {self.tier!r} and writes to it; name another tier"
        return None

    @property
    def selector(self) -> Selector:
        """The jobs to which the policy applies."""
        return Selector(self.states, self.tasks, self.tenants)

    def aged(self, now: datetime) -> Selection:
        """The jobs in its tier that are due by their age, whatever other policies say."""
        last = Position(now - (self.max_age or timedelta(0)), LAST_ID)
        return Selection(self.selector, self.from_tier, until=last, limit=self.batch)


def _names(label: str, name: str, given: object) -> frozenset[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadSettings(f"{label}: {name} is {given!r}; give a list of names")
    return frozenset(given)


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
    def position(self) -> Position:
        """Its place in the order of ended jobs."""
        return Position(self.finished_at, self.id)

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


class RestoredJob(NamedTuple):
    """An archived job as its rows, for the live tables."""

    job: JobRow
    executions: tuple[Execution, ...] = ()
    logs: tuple[LogEntry, ...] = ()
    streams: tuple[StreamEntry, ...] = ()


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
    job: JobRow,
    executions: Sequence[Execution],
    logs: Sequence[LogEntry],
    streams: Sequence[StreamEntry] = (),
    *,
    tier: str,
    policy: str,
) -> ArchivedJob:
    """The document of one ended job with its executions, logs and streams."""
    if job.finished_at is None or job.state not in ENDED:
        raise BadSettings(f"job {job.id} is {job.state}; only ended jobs are archived", id=job.id)
    body: dict[str, object] = {
        "format": 1,
        "job": {name: getattr(job, name) for name in _JOB_FIELDS},
        "executions": [_fields(execution) for execution in executions],
        "logs": [_fields(entry) for entry in logs],
    }
    if streams:
        body["streams"] = [[entry.name, entry.number, entry.n, entry.data] for entry in streams]
    text = _ENCODER.encode(body)
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


@lru_cache
def _names_of(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


_JOB_FIELDS = tuple(name for name in _names_of(JobRow) if name not in ("archived_at", "tier"))


def _fields(value: Execution | LogEntry | Details | ErrorInfo | Progress) -> dict[str, object]:
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names_of(kind)}


def _instant(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds")


_PLAIN: dict[type, Callable[[Any], object]] = {
    datetime: _instant,
    UUID: str,
    timedelta: timedelta.total_seconds,
    Details: _fields,
    ErrorInfo: _fields,
    Progress: _fields,
}
"""Conversions by exact type: an archive run converts a dozen values of each job."""


def _plain(value: object) -> object:
    convert = _PLAIN.get(type(value))
    if convert is not None:
        return convert(value)
    match value:
        case Mapping():
            return dict(value)
        case datetime():
            return _instant(value)
        case frozenset() | set():
            return sorted(str(item) for item in value)
        case _:
            raise TypeError(f"{type(value).__name__} cannot be stored in an archive document")


_ENCODER = json.JSONEncoder(default=_plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
