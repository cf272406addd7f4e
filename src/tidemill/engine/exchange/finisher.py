"""Conversion of results to store writes: outcome → ``decide`` → ``Finish``.

It writes nothing itself.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from tidemill.domain.decide import COMPLETED, DEFAULT_POLICY, completed, decide, late_completion
from tidemill.domain.graph import Additions
from tidemill.domain.job import NO_DETAILS, Claim, ErrorInfo, Finish, NewJob, Transition
from tidemill.domain.large_values import PREFIX
from tidemill.domain.outcome import Failed, Misfit, Outcome, Released, ReviewRequested, Succeeded, Suspended
from tidemill.domain.record import Keep, Record, rows_kept
from tidemill.domain.states import JobState
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.tasks.ambient import Audited

_log = logging.getLogger("tidemill.engine")


class Settled(NamedTuple):
    """A job whose result is decided and not yet written. Times are readings of the monotonic clock."""

    held: HeldJob
    claim: Claim
    transition: Transition
    result: str | None
    error: ErrorInfo | None
    began: float | None
    ended: float
    then: tuple[NewJob, ...] = ()
    audit: tuple[Audited, ...] = ()
    keep: Keep = Keep.ALL
    additions: Additions | None = None


SHORT = 0.01
"""Seconds. A shorter run is not compared with its timeout, because the hot path pays for every comparison."""
SEEN = 1.0
"""Seconds after which the recorded start of a running job stays as readers have seen it.

The claim of a job that begins at once records its start a few milliseconds early. The worker's exact start replaces that
only for a shorter job, where the difference matters.
"""

# Module globals: a member of an Enum class is slow to look up before Python 3.12.
FULL, KEEP_ALL = Record.FULL, Keep.ALL

# Like Settled(...), without the cost of parsing keyword arguments.
_settled = partial(tuple.__new__, Settled)
_finish = partial(tuple.__new__, Finish)


def settle(held: HeldJob, ended: ExecutionEnd | None, at: float) -> Settled:
    """Decide the transition of a job whose handler has ended, or was stopped (``ended`` is None)."""
    if ended is not None:
        outcome, result, _, began, ended_at, _, then, audit, additions = ended
        if type(outcome) is Succeeded:  # success wins over any request to stop
            claim, change = held.claim, COMPLETED
            if ended_at - began > SHORT:
                change = _late(claim, ended_at - began)
            if result is not None and change is COMPLETED and result.startswith(PREFIX):
                change = completed(result)
            keep = KEEP_ALL
            if held.details is not NO_DETAILS or held.declared.options.record is not FULL:
                keep = rows_kept(held.record, change.state, claim.token)
            return _settled(
                (held, claim, change, result, None, began, ended_at, then, audit, keep, additions)
            )
    return settle_as(held, held.outcome(ended), ended, at)


def _late(claim: Claim, took: float) -> Transition:
    """The transition of a job that succeeded, with a mark if it ran past its timeout."""
    if claim.timeout is None or took <= claim.timeout.total_seconds():
        return COMPLETED
    return late_completion(claim.timeout, took)


def settle_as(held: HeldJob, outcome: Outcome, ended: ExecutionEnd | None, at: float) -> Settled:
    """Decide the transition for an outcome that the handler did not produce itself."""
    claim = held.claim
    if held.cancel_reason != claim.cancel_reason:
        claim = claim._replace(cancel_reason=held.cancel_reason)
    now, jitter = held.now(), random.random()  # noqa: S311  (not security-relevant)
    try:
        transition = decide(claim, outcome, held.policy(), now, jitter)
    except Exception:  # noqa: BLE001  (the stored options no longer fit, or the user's policy fails)
        _log.exception("the retry policy of job %s cannot be used; the default one decides", claim.id)
        transition = decide(claim, outcome, DEFAULT_POLICY, now, jitter)
    result = error = None
    if isinstance(outcome, Failed) or (isinstance(outcome, Misfit) and transition.state is JobState.FAILED):
        error = outcome.error
    elif isinstance(outcome, ReviewRequested):
        result = outcome.output
    began = held.began if ended is None else ended.began
    keep = rows_kept(held.record, transition.state, claim.token)
    ended_at = at if ended is None else ended.ended
    additions = ended.additions if ended is not None and isinstance(outcome, Suspended) else None
    return Settled(held, claim, transition, result, error, began, ended_at, keep=keep, additions=additions)


def release(held: HeldJob, reason: str, at: float) -> Settled:
    """Return a job to the queue. This costs no attempt. A job that has expired is cancelled instead."""
    return settle_as(held, Released(reason), None, at)


def finishes_of(settled: Iterable[Settled], at: float) -> list[Finish]:
    """The writes for the store, at this reading of the clock of the results."""
    return [
        _finish(
            (
                claim,
                change,
                result,
                error,
                None
                if began is None or (ended - began >= SEEN and claim.state is JobState.RUNNING)
                else at - began,
                at - ended,
                then,
                audit,
                keep,
                additions,
                # A hint: the store finds out by itself about jobs that others began to wait for later.
                additions is not None or (claim.detailed and held.details.group_id is not None),
            )
        )
        for held, claim, change, result, error, began, ended, then, audit, keep, additions in settled
    ]
