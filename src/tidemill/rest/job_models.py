"""The shapes of jobs: what creating takes, how they are found, and what is answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from tidemill.domain.filters import MAX_TEXT
from tidemill.domain.retry import RetryPolicy, policy_from_data
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter, BadSettings
from tidemill.rest.models import MOST, Body, Cursor, Document, Instant, Limit, Name, Query, Seconds, Words

Status = Literal[
    "scheduled", "pending", "claimed", "running", "waiting", "review_needed", "completed", "failed", "timed_out",
    "cancelled", "dead_lettered",
]  # fmt: skip

assert set(Status.__args__) == {state.value for state in JobState}  # type: ignore[attr-defined]

Correlation = Annotated[str, Field(min_length=1, max_length=64)]
Tag = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class UniqueBody(Body):
    """At most one job with the same values of these arguments."""

    by: list[str] = Field([], max_length=100, description="Names of arguments; none: all of them.")
    within: Seconds | None = Field(None, description="Also for so many seconds after the enqueue.")
    states: Literal["pending", "live"] = "live"
    on_conflict: Literal["return", "replace", "extend", "raise"] = "return"


class JobBody(Body):
    """A request to run a task once. What is left out is as the task says."""

    task: Name = Field(examples=["send"])
    args: dict[str, Any] = Field({}, examples=[{"to": "ada@example.com"}])
    tenant: Name | None = Field(None, description="For keys of all tenants: whose job it is.")
    queue: Name | None = None
    priority: int | None = Field(None, ge=-100, le=100, description="Higher runs first.")
    run_after: Instant | Seconds | None = Field(
        None, description="An instant, or seconds from now.", examples=["2030-01-01T06:00:00Z"]
    )
    delay: Seconds | None = Field(None, description="Seconds from now.")
    expires: Instant | Seconds | None = Field(None, description="Cancelled if it has not begun by then.")
    timeout: Seconds | None = Field(None, description="Seconds one attempt may take; null: any time.")
    retry: dict[str, Any] | None = Field(
        None,
        description="A retry policy; null: one attempt.",
        examples=[{"kind": "fixed", "max_attempts": 3, "wait": 10}],
    )
    correlation_id: Correlation | None = None
    parent_id: UUID | None = None
    tags: list[Tag] = Field([], max_length=100)
    metadata: dict[str, Any] = Field({})
    reference: tuple[str, str] | None = Field(None, examples=[["user", "42"]])
    unique: UniqueBody | None = None
    tier: Name | None = None
    audit: bool | None = None


class JobsQuery(Query):
    """Which jobs are meant, and which page of them."""

    status: list[Status] = Field([], description="May be repeated.")
    task: list[str] = Field([], description="May be repeated.")
    queue: list[str] = Field([], description="May be repeated.")
    correlation_id: str | None = None
    parent_id: UUID | None = None
    reference: str | None = Field(
        None, pattern=r"^[^:]+:.*$", description="As `kind:id`.", examples=["user:42"]
    )
    tag: str | None = None
    metadata: list[Annotated[str, Field(pattern=r"^[^=]+=.*$")]] = Field(
        [], max_length=20, description="As `key=value`; may be repeated."
    )
    created_after: Instant | None = None
    created_before: Instant | None = None
    text: Text | None = Field(
        None,
        description="In the id, the task, a tag, the arguments (not for viewers) or the error; capitals do not matter. A page "
        "may hold fewer items than asked for, even none, and still have a `next`.",
    )
    sort: Literal["newest", "oldest"] = "newest"
    limit: Limit = 100
    cursor: Cursor = None

    def conditions(self) -> dict[str, Any]:
        """As ``app.jobs`` takes them."""
        found = self.model_dump(exclude={"tenant", "sort", "limit", "cursor"}, exclude_defaults=True)
        if self.reference is not None:
            kind, _, id = self.reference.partition(":")
            found["reference"] = (kind, id)
        if self.metadata:
            found["metadata"] = dict(pair.split("=", 1) for pair in self.metadata)
        return found


class JobQuery(Query):
    """What is shown of one job."""

    logs: bool = Field(False, description=f"With its first {MOST} log lines.")


class JobFilterBody(Body):
    """Which jobs are meant; every condition must hold."""

    ids: list[UUID] = Field([], max_length=MOST)
    status: list[Status] = Field([])
    task: list[str] = Field([])
    queue: list[str] = Field([])
    correlation_id: str | None = None
    parent_id: UUID | None = None
    reference: tuple[str, str] | None = None
    tag: str | None = None
    metadata: dict[str, str] = Field({})
    created_after: Instant | None = None
    created_before: Instant | None = None
    text: Text | None = None

    def conditions(self) -> dict[str, Any]:
        """As ``app.jobs`` takes them; at least one."""
        found = self.model_dump(exclude_defaults=True)
        if not found:
            raise BadFilter("filter: say which jobs are meant; an empty filter would mean all of them")
        return found


class BulkBody(Body):
    """One thing to do to many jobs."""

    action: Literal["cancel", "retry", "delete"]
    filter: JobFilterBody = Field(examples=[{"status": ["failed"], "task": ["send"]}])
    reason: Words | None = Field(None, description="Why; kept with jobs that are cancelled.")
    limit: int = Field(1_000, ge=1, le=10_000, description="At most so many, the oldest first.")


class ReasonBody(Body):
    """Why."""

    reason: Words | None = None


class CommentBody(Body):
    """What the person who decides has to say."""

    comment: Words | None = None


class ErrorDocument(Document):
    """A user's exception."""

    type: str
    message: str
    traceback: str | None = None


class ProgressDocument(Document):
    """How far a job is."""

    id: UUID
    status: Status
    reason: str | None = None
    progress: float = Field(description="0 to 1.", examples=[0.5])
    message: str | None = None
    step: int | None = None
    total: int | None = None
    stage: str | None = None
    eta: Instant | None = None
    attempt: int
    max_attempts: int


class LogDocument(Document):
    """One line a job wrote."""

    at: Instant
    level: str
    stage: str | None
    message: str
    details: dict[str, Any] | None
    duration: float | None
    number: int


class JobDocument(ProgressDocument):
    """All that is known of one job."""

    task: str
    tenant: str
    queue: str
    priority: int
    args: Any
    run_at: Instant
    created_at: Instant
    started_at: Instant | None = None
    finished_at: Instant | None = None
    expires_at: Instant | None = None
    timeout: float | None = None
    crashes: int
    worker: UUID | None = None
    cancel_reason: str | None = None
    value: Any = Field(None, description="What the task returned.")
    output: Any = Field(None, description="What is shown to the person who decides.")
    error: ErrorDocument | None = None
    correlation_id: str
    parent_id: UUID | None = None
    reference: list[str] | None = None
    tags: list[str]
    metadata: dict[str, Any]
    unique_key: str | None = None
    limits: list[str]
    logs: list[LogDocument] | None = Field(None, description="Only where it was asked for.")


class ExecutionDocument(Document):
    """One attempt at a job."""

    number: int
    attempt: int
    status: str
    worker: UUID | None
    claimed_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    reason: str | None
    error: ErrorDocument | None


class ReasonDocument(Document):
    """Why a job is not running: a stable code and a sentence."""

    code: str = Field(examples=["no_workers"])
    text: str = Field(examples=["No worker is alive; start one."])


class ActedDocument(Document):
    """What a bulk action did; ``more`` says that there are more jobs that match."""

    done: int
    skipped: int
    more: bool


def span(value: float | None) -> timedelta | None:
    """Seconds as a duration."""
    return None if value is None else timedelta(seconds=value)


def read_policy(data: dict[str, Any]) -> RetryPolicy:
    """A retry policy as it was said."""
    try:
        return policy_from_data(data)
    except (TypeError, ValueError, ArithmeticError):
        raise BadSettings(
            "retry: this is no retry policy; give kind and its settings, such as max_attempts", field="retry"
        ) from None
