"""Request and response models of jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from tidemill.domain.filters import MAX_TEXT
from tidemill.domain.retry import RetryPolicy, policy_from_data
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter, BadSettings
from tidemill.rest.models import (
    MOST,
    BodyModel,
    Cursor,
    Document,
    Instant,
    Limit,
    Name,
    QueryModel,
    Seconds,
    Words,
)

Status = Literal[
    "scheduled", "pending", "claimed", "running", "waiting", "review_needed", "completed", "failed", "timed_out",
    "cancelled", "dead_lettered",
]  # fmt: skip

assert set(Status.__args__) == {state.value for state in JobState}  # type: ignore[attr-defined]

Correlation = Annotated[str, Field(min_length=1, max_length=64)]
Tag = Annotated[str, Field(min_length=1, max_length=200)]
Reference = tuple[str, str] | Annotated[str, Field(pattern=r"^[^:]+:.+$")]
MADE_BY = "Jobs created by this {0}, given by key or id."
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class UniqueBody(BodyModel):
    """At most one job with the same values of these arguments."""

    by: list[str] = Field([], max_length=100, description="Names of arguments; default: all of them.")
    within: Seconds | None = Field(
        None, description="Seconds after the enqueue during which the rule also holds."
    )
    states: Literal["pending", "live"] = "live"
    on_conflict: Literal["return", "replace", "extend", "raise"] = "return"
    failed: Literal["return", "retry"] = Field(
        "return", description="Whether a holder that ended without a result is returned or run again."
    )


class JobBody(BodyModel):
    """A request to run a task once. Omitted fields use the task's options."""

    task: Name = Field(examples=["send"])
    args: dict[str, Any] = Field({}, examples=[{"to": "ada@example.com"}])
    tenant: Name | None = Field(None, description="Tenant of the job; only for keys of all tenants.")
    queue: Name | None = None
    priority: int | None = Field(None, ge=-100, le=100, description="Higher runs first.")
    run_after: Instant | Seconds | None = Field(
        None, description="An instant, or seconds from now.", examples=["2030-01-01T06:00:00Z"]
    )
    delay: Seconds | None = Field(None, description="Seconds from now.")
    expires: Instant | Seconds | None = Field(
        None, description="The job is cancelled if it has not started by then."
    )
    timeout: Seconds | None = Field(None, description="Maximum seconds per attempt; null: no limit.")
    retry: dict[str, Any] | None = Field(
        None,
        description="A retry policy; null: one attempt.",
        examples=[{"kind": "fixed", "max_attempts": 3, "wait": 10}],
    )
    correlation_id: Correlation | None = None
    parent_id: UUID | None = None
    tags: list[Tag] = Field([], max_length=100)
    metadata: dict[str, Any] = Field({})
    reference: Reference | None = Field(
        None, description="As `kind:id`, or as a pair.", examples=["user:42", ["user", "42"]]
    )
    unique: UniqueBody | None = None
    audit: bool | None = None
    record: Literal["full", "last", "none"] | None = Field(
        None,
        description="Which executions are kept after the end; `none` keeps nothing of a job that succeeds.",
    )


class JobsQuery(QueryModel):
    """Filter and page of a job list."""

    status: list[Status] = Field([], description="May be repeated.")
    task: list[str] = Field([], description="May be repeated.")
    queue: list[str] = Field([], description="May be repeated.")
    correlation_id: str | None = None
    parent_id: UUID | None = None
    definition: str | None = Field(None, min_length=1, description=MADE_BY.format("definition"))
    definition_version: int | None = Field(None, ge=1, description="Only with `definition`.")
    schedule: str | None = Field(None, min_length=1, description=MADE_BY.format("schedule"))
    fire_at: Instant | None = Field(None, description="Jobs of this fire; only with `schedule`.")
    flow: UUID | None = Field(None, description="Jobs of this flow or batch, by its id.")
    reference: str | None = Field(
        None, pattern=r"^[^:]+:.*$", description="As `kind:id`.", examples=["user:42"]
    )
    tag: str | None = None
    metadata: list[Annotated[str, Field(pattern=r"^[^=]+=.*$")]] = Field(
        [], max_length=20, description="As `key=value`; may be repeated."
    )
    created_after: Instant | None = None
    created_before: Instant | None = None
    arg: list[Annotated[str, Field(pattern=r"^[^=]+=.*$")]] = Field(
        [],
        max_length=20,
        description="Value of an argument, as `name=value`; may be repeated. Numbers and booleans as in JSON.",
        examples=["account=42"],
    )
    error: str | None = Field(
        None,
        min_length=1,
        description="Class of the error, with or without its module.",
        examples=["ConnectionError"],
    )
    error_group: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        description="Fingerprint of a group of errors, as in `/api/errors`.",
    )
    worker: str | None = Field(
        None, min_length=1, description="Worker of the last execution: its name or its id."
    )
    took_over: Seconds | None = Field(None, description="The last execution ended and took more seconds.")
    text: Text | None = Field(
        None,
        description="Text in the id, the task, a tag, the arguments (not for viewers) or the error; case-insensitive. A page "
        "may hold fewer items than requested, even none, and still have a `next`.",
    )
    tiers: list[Annotated[str, Field(min_length=1)]] = Field(
        [],
        max_length=20,
        description="`live` (the default), `tables` (also archived jobs in databases), `all` (also those in files), or names "
        "of tiers; may be repeated.",
    )
    sort: Literal["newest", "oldest"] = "newest"
    limit: Limit = 100
    cursor: Cursor = None

    def conditions(self) -> dict[str, Any]:
        """Return the arguments of ``app.jobs``."""
        left_out = {"tenant", "sort", "limit", "cursor", "tiers", "arg"}
        conditions = self.model_dump(exclude=left_out, exclude_defaults=True)
        if self.reference is not None:
            kind, _, id = self.reference.partition(":")
            conditions["reference"] = (kind, id)
        if self.metadata:
            conditions["metadata"] = dict(pair.split("=", 1) for pair in self.metadata)
        if self.arg:
            conditions["args"] = dict(pair.split("=", 1) for pair in self.arg)
        return conditions


class JobQuery(QueryModel):
    """Options for showing one job."""

    logs: bool = Field(False, description=f"Include the first {MOST} log lines.")


class JobFilterBody(BodyModel):
    """Filter of jobs; all conditions must match."""

    ids: list[UUID] = Field([], max_length=MOST)
    status: list[Status] = Field([])
    task: list[str] = Field([])
    queue: list[str] = Field([])
    correlation_id: str | None = None
    parent_id: UUID | None = None
    reference: Reference | None = Field(None, description="As `kind:id`, or as a pair.")
    definition: str | None = Field(None, min_length=1, description=MADE_BY.format("definition"))
    definition_version: int | None = Field(None, ge=1, description="Only with `definition`.")
    schedule: str | None = Field(None, min_length=1, description=MADE_BY.format("schedule"))
    fire_at: Instant | None = Field(None, description="Jobs of this fire; only with `schedule`.")
    flow: UUID | None = Field(None, description="Jobs of this flow or batch, by its id.")
    tag: str | None = None
    metadata: dict[str, str] = Field({})
    created_after: Instant | None = None
    created_before: Instant | None = None
    args: dict[str, str | int | float | bool | None] = Field({}, description="Values of arguments.")
    error: str | None = Field(
        None, min_length=1, description="Class of the error, with or without its module."
    )
    error_group: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        description="Fingerprint of a group of errors, as in `/api/errors`.",
    )
    worker: str | None = Field(
        None, min_length=1, description="Worker of the last execution: its name or its id."
    )
    took_over: Seconds | None = Field(None, description="The last execution ended and took more seconds.")
    text: Text | None = None

    def conditions(self) -> dict[str, Any]:
        """Return the arguments of ``app.jobs``; at least one condition is required."""
        conditions = self.model_dump(exclude_defaults=True)
        if not conditions:
            raise BadFilter("filter: specify at least one condition; an empty filter would match every job")
        return conditions


class BulkBody(BodyModel):
    """An action on all jobs that match a filter."""

    action: Literal["cancel", "retry", "delete", "change"]
    filter: JobFilterBody = Field(examples=[{"status": ["failed"], "task": ["send"]}])
    reason: Words | None = Field(None, description="Reason, stored with cancelled jobs.")
    priority: int | None = Field(None, ge=-100, le=100, description="For `change`: the new priority.")
    queue: Name | None = Field(None, description="For `change`: the new queue.")
    limit: int = Field(1_000, ge=1, le=10_000, description="Maximum number of jobs; the oldest come first.")


class ReasonBody(BodyModel):
    """Reason for the action."""

    reason: Words | None = None


class CancelBody(ReasonBody):
    """Reason, and whether to cancel child jobs too."""

    children: bool = Field(
        False, description="Also cancel the jobs that it enqueued, and their children, recursively."
    )


class ChangeBody(BodyModel):
    """New queue, new priority, or both."""

    priority: int | None = Field(None, ge=-100, le=100, description="Higher runs first.")
    queue: Name | None = None


class RescheduleBody(BodyModel):
    """New time of a job."""

    run_at: Instant = Field(description="When to run the job; not in the past.")


class CommentBody(BodyModel):
    """Comment on the decision."""

    comment: Words | None = None


class ErrorDocument(Document):
    """Exception raised by a task."""

    type: str
    message: str
    traceback: str | None = None


class ProgressDocument(Document):
    """Progress of a job."""

    id: UUID
    status: Status
    reason: str | None = None
    progress: float = Field(description="0 to 1.", examples=[0.5])
    progress_percent: int = Field(description="0 to 100.", examples=[50])
    updated_at: Instant | None = Field(None, description="When the job last reported progress.")
    message: str | None = None
    step: int | None = None
    total: int | None = None
    stage: str | None = None
    eta: Instant | None = None
    attempt: int
    max_attempts: int


class LogDocument(Document):
    """One log line of a job."""

    at: Instant
    level: str
    stage: str | None
    message: str
    details: dict[str, Any] | None
    duration: float | None
    number: int


class BlobDocument(Document):
    """Arguments or a result that are too large for the job's document."""

    size: int = Field(description="Bytes of JSON.")
    sha256: str | None = None
    note: str | None = Field(None, description="Why a result was not kept.")


class JobDocument(ProgressDocument):
    """One job with all its details."""

    task: str
    tenant: str
    queue: str
    priority: int
    args: Any
    args_blob: BlobDocument | None = Field(
        None, description="Set if the arguments are large: `args` is null, and `/args` returns them."
    )
    run_at: Instant
    created_at: Instant
    started_at: Instant | None = None
    finished_at: Instant | None = None
    duration: float | None = Field(
        None, description="Seconds from the start of the last execution to the end of the job."
    )
    expires_at: Instant | None = None
    archived_at: Instant | None = Field(
        None, description="Set if the job is in the archive; restore it to change it."
    )
    tier: str | None = Field(None, description="Archive tier of an archived job.")
    timeout: float | None = None
    crashes: int
    worker: UUID | None = None
    cancel_reason: str | None = None
    value: Any = Field(None, description="Return value of the task.")
    output: Any = Field(None, description="Output shown to the reviewer.")
    value_blob: BlobDocument | None = Field(
        None, description="Set if the value or output is large: it is null, and `/value` returns it."
    )
    error: ErrorDocument | None = None
    correlation_id: str
    trace_id: str | None = Field(
        None, description="Trace id from the `traceparent` header, if the job was enqueued with one."
    )
    parent_id: UUID | None = None
    definition_id: UUID | None = Field(None, description="The definition that created the job.")
    definition_version: int | None = None
    schedule_id: UUID | None = Field(None, description="The schedule that created the job.")
    fire_at: Instant | None = Field(None, description="The fire of the schedule that created the job.")
    reference: list[str] | None = None
    tags: list[str]
    metadata: dict[str, Any]
    headers: dict[str, str] = Field(description="Set by the enqueueing code for the code that runs the job.")
    unique_key: str | None = None
    limits: list[str]
    logs: list[LogDocument] | None = Field(None, description="Only if requested with `logs`.")


class ExecutionDocument(Document):
    """One attempt of a job."""

    number: int
    attempt: int
    status: str
    worker: UUID | None
    claimed_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    duration: float | None
    reason: str | None
    error: ErrorDocument | None


class StepDocument(Document):
    """One recorded step of a durable function."""

    name: str
    kind: str = Field(description="`value`, `error`, `sleep`, `signal`, `job`, `jobs` and so on.")
    value: Any = Field(description="The result of the step, or what was recorded instead.")
    took: float | None = Field(description="Seconds that the function of the step took.")
    tries: int


class StageDocument(Document):
    """One stage of a job."""

    name: str
    state: str = Field(
        description="`ahead`, `running`, `done`, `not reached`, `not finished`, or how it failed."
    )
    execution: int | None = Field(description="The execution in which the stage ran.")
    began_at: Instant | None
    ended_at: Instant | None
    took: float | None = Field(description="Seconds.")


class ReasonDocument(Document):
    """Why a job is not running: a stable code and a sentence."""

    code: str = Field(examples=["no_workers"])
    text: str = Field(examples=["No worker is alive; start one."])


class ActedDocument(Document):
    """Result of a bulk action; ``more`` is true if more jobs match."""

    done: int
    skipped: int
    more: bool


def span(value: float | None) -> timedelta | None:
    """Convert seconds to a duration."""
    return None if value is None else timedelta(seconds=value)


def read_policy(data: dict[str, Any]) -> RetryPolicy:
    """Parse a retry policy."""
    try:
        return policy_from_data(data)
    except (TypeError, ValueError, ArithmeticError):
        raise BadSettings(
            "retry: not a valid retry policy; specify kind and its settings, such as max_attempts",
            field="retry",
        ) from None
