"""The logger ``tidemill.jobs``: one line per failed attempt.

The line contains the traceback and the job's fields. It is a WARNING while the job will be retried, and an ERROR once
it has ended. Successful attempts are logged at DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.domain.stats import FAILURES
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.log_records import FIELDS

_log = logging.getLogger("tidemill.jobs")

_FAILED = frozenset({ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.CRASHED})


def log_ends(settled: Sequence[Settled]) -> None:
    """Log how these attempts ended. Nearly all of them succeeded and cost one comparison each."""
    detailed = _log.isEnabledFor(logging.DEBUG)
    for item in settled if detailed else [item for item in settled if item.transition is not COMPLETED]:
        _log_end(item)


def _log_end(item: Settled) -> None:
    claim, change = item.claim, item.transition
    failed = change.execution in _FAILED
    if not failed:
        level = logging.DEBUG
    else:
        level = logging.ERROR if change.state in FAILURES else logging.WARNING
    if not _log.isEnabledFor(level):
        return
    why = f": {change.reason}" if change.reason else ""
    text = f"{claim.task} {claim.id} attempt {claim.attempt} of {claim.max_attempts} {change.execution}"
    text += f", {_next(item)}{why}"
    if failed and item.error is not None and item.error.traceback:
        text += f"\n{item.error.traceback.rstrip()}"
    correlation_id = item.held.details.correlation_id or str(claim.id)
    _log.log(level, "%s", text, extra=_fields(claim, correlation_id))


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


def _fields(claim: Claim, correlation_id: str) -> dict[str, Any]:
    values = (str(claim.id), claim.task, claim.attempt, claim.queue, claim.tenant, correlation_id)
    return dict(zip(FIELDS, values, strict=True))
