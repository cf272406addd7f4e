"""Hypothesis strategies for jobs, claims and outcomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tidemill.domain.decide import OrphanRule, Policy
from tidemill.domain.job import Claim, Details, ErrorInfo, Execution, JobRow, LogEntry, Progress
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Misfit,
    Outcome,
    Released,
    ReviewRequested,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
)
from tidemill.domain.retry import Exponential, Fixed, Immediate, Linear, NoRetry, RetryPolicy
from tidemill.domain.states import ENDED, ExecutionState, JobState

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")

words = st.text(min_size=1, max_size=12)
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
waits = st.timedeltas(timedelta(0), timedelta(days=30))
shares = st.floats(0.0, 1.0, exclude_max=True)
uuids = st.uuids()

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(st.text(max_size=6), json_values, max_size=4)


def a_claim(**changes: Any) -> Claim:
    """Return an ordinary claim on its first attempt, with changes."""
    plain = Claim(
        id=ID,
        task="mail.send",
        queue="default",
        tenant="default",
        priority=0,
        attempt=1,
        max_attempts=4,
        crashes=0,
        token=1,
        run_at=NOW,
        created_at=NOW,
        expires_at=None,
        timeout=timedelta(hours=1),
        args="{}",
        unique_key=None,
        limits=None,
        detailed=False,
        seq=1,
    )
    return plain._replace(**changes)


def a_job(state: JobState = JobState.PENDING, **changes: Any) -> JobRow:
    """Return an ordinary job in a state, with changes."""
    fields: dict[str, Any] = {
        "id": ID,
        "task": "mail.send",
        "state": state,
        "tenant": "default",
        "queue": "default",
        "priority": 0,
        "args": "{}",
        "attempt": 1,
        "max_attempts": 4,
        "crashes": 0,
        "token": 1,
        "run_at": NOW,
        "created_at": NOW,
        "finished_at": NOW if state in ENDED else None,
    }
    return JobRow(**{**fields, **changes})


@st.composite
def claims(draw: st.DrawFn) -> Claim:
    """Draw realistic claims: the running attempt never exceeds the maximum."""
    most = draw(st.integers(1, 10))
    return a_claim(
        attempt=draw(st.integers(1, most)),
        max_attempts=most,
        crashes=draw(st.integers(0, 5)),
        expires_at=draw(
            st.none() | st.timedeltas(timedelta(-2), timedelta(days=60)).map(lambda ahead: NOW + ahead)
        ),
        cancel_reason=draw(st.none() | st.text(min_size=1, max_size=5)),
        state=draw(st.sampled_from([JobState.CLAIMED, JobState.RUNNING])),
    )


errors = st.builds(ErrorInfo, type=words, message=words, traceback=st.none() | words)
failures = st.builds(
    Failed,
    error=errors,
    permanent=st.booleans(),
    retryable=st.none() | st.booleans(),
    retry_after=st.none() | waits,
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeeded, st.none() | words),
    failures,
    st.builds(TimedOut, waits),
    st.builds(Cancelled, st.none() | words),
    st.builds(Crashed, words, st.booleans()),
    st.builds(Released, words),
    st.builds(Snoozed, waits, st.none() | words),
    st.builds(Suspended, words, st.none() | waits),
    st.builds(ReviewRequested, words, st.none() | words),
    st.builds(Misfit, errors, words, st.integers(0, 100), st.none() | st.just(NOW), waits),
)

_attempts = st.integers(1, 50)
_caps = st.none() | waits
retries: st.SearchStrategy[RetryPolicy] = st.one_of(
    st.builds(NoRetry),
    st.builds(Immediate, _attempts, st.floats(0, 1), _caps),
    st.builds(Fixed, _attempts, waits, st.floats(0, 1), _caps),
    st.builds(Linear, _attempts, waits, st.floats(0, 1), _caps),
    st.builds(Exponential, _attempts, waits, st.floats(1, 1000), st.floats(0, 1), _caps),
)
policies = st.builds(Policy, retry=retries, crash_cap=st.integers(1, 6), orphans=st.sampled_from(OrphanRule))

details = st.builds(
    Details,
    correlation_id=st.none() | words,
    parent_id=st.none() | uuids,
    reference=st.none() | st.tuples(words, words),
    tags=st.lists(words, max_size=3).map(tuple),
    metadata=json_objects,
    headers=st.dictionaries(words, words, max_size=2),
)
progresses = st.builds(
    Progress, fraction=st.none() | st.floats(0, 1), message=st.none() | words, at=st.none() | instants
)


@st.composite
def ended_jobs(draw: st.DrawFn) -> JobRow:
    """Draw ended jobs with every optional field."""
    return a_job(
        draw(st.sampled_from(sorted(ENDED))),
        id=draw(uuids),
        args=draw(st.text(max_size=20)),
        attempt=draw(st.integers(0, 9)),
        created_at=draw(instants),
        finished_at=draw(instants),
        timeout=draw(st.none() | waits),
        worker=draw(st.none() | uuids),
        result=draw(st.none() | st.text(max_size=20)),
        error=draw(st.none() | errors),
        progress=draw(st.none() | progresses),
        limits=tuple(draw(st.lists(words, max_size=2))),
        details=draw(details),
    )


executions = st.builds(
    Execution,
    job_id=uuids,
    number=st.integers(1, 99),
    attempt=st.integers(1, 9),
    state=st.sampled_from(ExecutionState),
    worker=st.none() | uuids,
    claimed_at=st.none() | instants,
    started_at=st.none() | instants,
    finished_at=st.none() | instants,
    error=st.none() | errors,
)
log_entries = st.builds(
    LogEntry,
    job_id=uuids,
    number=st.integers(1, 99),
    at=instants,
    message=st.text(max_size=20),
    details=st.none() | json_objects,
    duration=st.none() | waits,
)
