"""The logger ``tidemill.jobs``: one line per failed attempt.

The line contains the traceback and the job's fields. It is a WARNING while the job will be retried, and an ERROR once
it has ended. Successful attempts are logged at DEBUG, or at INFO with the start of every attempt if the app has
``log_jobs=True``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import LogEntry
from tidemill.domain.payload import cut
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.domain.stats import FAILURES
from tidemill.domain.trace_context import trace_id
from tidemill.engine.context import LINE_LENGTH
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.log_capture import level_of
from tidemill.engine.log_records import FIELDS

_log = logging.getLogger("tidemill.jobs")

_FAILED = frozenset({ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.CRASHED})


def log_starts(jobs: Iterable[HeldJob]) -> None:
    """Log at INFO that a worker starts these attempts."""
    if _log.isEnabledFor(logging.INFO):
        for held in jobs:
            claim = held.claim
            text = f"{claim.task} {claim.id} attempt {claim.attempt} of {claim.max_attempts} starts"
            _log.info("%s", text, extra=_fields(held))


def log_ends(settled: Sequence[Settled], *, everything: bool = False) -> None:
    """Log how these attempts ended; with ``everything``, successes at INFO instead of DEBUG.

    Nearly all of them succeeded and cost one comparison each.
    """
    usual = logging.INFO if everything else logging.DEBUG
    detailed = _log.isEnabledFor(usual)
    for item in settled if detailed else [item for item in settled if item.transition is not COMPLETED]:
        level = _level(item) or usual
        if _log.isEnabledFor(level):
            fields = _fields(item.held) | {"tidemill_raised": _raised(item)}
            _log.log(level, "%s %s %s", item.claim.task, item.claim.id, _text(item), extra=fields)


def failure_entry(item: Settled, least: int | None, at: datetime) -> LogEntry | None:
    """The line about a failed attempt in the job's own log; None if it did not fail or the level is not captured."""
    level = _level(item)
    if level is None or least is None or level < least:
        return None
    claim, details = item.claim, {"logger": _log.name}
    text = cut(_text(item), LINE_LENGTH)
    return LogEntry(claim.id, claim.token, at, text, level_of(level), None, details, worker=claim.worker)


def _level(item: Settled) -> int | None:
    """The level of a failed attempt; None if it did not fail."""
    if item.transition.execution not in _FAILED:
        return None
    return logging.ERROR if item.transition.state in FAILURES else logging.WARNING


def _text(item: Settled) -> str:
    claim, change = item.claim, item.transition
    why = f": {change.reason}" if change.reason else ""
    text = f"attempt {claim.attempt} of {claim.max_attempts} {change.execution}, {_next(item)}{why}"
    if change.execution in _FAILED and item.error is not None and item.error.traceback:
        text += f"\n{item.error.traceback.rstrip()}"
    return text


def _raised(item: Settled) -> bool:
    """Whether the attempt raised an exception, which the hooks for failures have reported where it was raised."""
    return item.error is not None and bool(item.error.traceback)


def _next(item: Settled) -> str:
    change = item.transition
    if change.state is JobState.PENDING:
        return "next attempt now"
    if change.state is JobState.SCHEDULED:
        return f"next attempt in {_span(change.delay.total_seconds())}"
    return f"job {change.state}" if change.state in ENDED else f"job is {change.state}"


def _span(seconds: float) -> str:
    """A wait in one unit.

    >>> _span(4.87), _span(600), _span(5400)
    ('4.9 s', '10 min', '1.5 h')
    """
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _fields(held: HeldJob) -> dict[str, Any]:
    claim, details = held.claim, held.details
    correlation_id = details.correlation_id or str(claim.id)
    trace = trace_id(details.headers)
    values = (str(claim.id), claim.task, claim.attempt, claim.queue, claim.tenant, correlation_id, trace)
    return dict(zip(FIELDS, values, strict=True))
