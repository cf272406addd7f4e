"""How handlers' ends become writes: outcome → ``decide`` → ``Finish``. It writes nothing itself."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from tidemill.domain.decide import COMPLETED, DEFAULT_POLICY, decide
from tidemill.domain.job import Claim, ErrorInfo, Finish, Transition
from tidemill.domain.outcome import Failed, Outcome, Released, Review, Succeeded
from tidemill.domain.states import ENDED, JobState
from tidemill.engine.execute import Ended
from tidemill.engine.held import Held

_log = logging.getLogger("tidemill.engine")


class Settled(NamedTuple):
    """A job whose end is decided and not yet written. Times are readings of the monotonic clock."""

    held: Held
    claim: Claim
    transition: Transition
    result: str | None
    error: ErrorInfo | None
    began: float | None
    ended: float

    def finish(self, at: float) -> Finish:
        """What the store is to write, at this reading of the same clock."""
        _, claim, transition, result, error, began, ended = self
        return _finish((claim, transition, result, error, None if began is None else at - began, at - ended))


_settled = partial(tuple.__new__, Settled)  # as Settled(...), which takes its arguments apart by name first
_finish = partial(tuple.__new__, Finish)


def settle(held: Held, ended: Ended | None, at: float) -> Settled:
    """Decide what becomes of a job whose handler has ended, or was stopped (None)."""
    if ended is not None:
        outcome, result, _, began, ended_at, _ = ended
        if type(outcome) is Succeeded:  # whatever was asked of it meanwhile
            return _settled((held, held.claim, COMPLETED, result, None, began, ended_at))
    return settle_as(held, held.outcome(ended), ended, at)


def settle_as(held: Held, outcome: Outcome, ended: Ended | None, at: float) -> Settled:
    """Decide with an outcome that the handler has no say in."""
    claim = held.claim
    if held.cancel_reason != claim.cancel_reason:
        claim = claim._replace(cancel_reason=held.cancel_reason)
    now, jitter = held.now(), random.random()  # noqa: S311  (no secret)
    try:
        transition = decide(claim, outcome, held.declared.policy(held.details), now, jitter)
    except Exception:  # noqa: BLE001  (what was stored with the job does not fit any more, or a policy of the user's fails)
        _log.exception("the retry policy of job %s cannot be used; the default one decides", claim.id)
        transition = decide(claim, outcome, DEFAULT_POLICY, now, jitter)
    result = error = None
    if isinstance(outcome, Failed):
        error = outcome.error
    elif isinstance(outcome, Review):
        result = outcome.output
    began = held.began if ended is None else ended.began
    return Settled(held, claim, transition, result, error, began, at if ended is None else ended.ended)


def release(held: Held, reason: str, at: float) -> Settled:
    """Hand a job back; it costs no attempt, and one that has expired meanwhile is cancelled."""
    return settle_as(held, Released(reason), None, at)


def topics(written: Iterable[Settled | Finish]) -> set[str]:
    """Who is to be woken by these writes: workers of the queue, whoever waits for an end, whoever promotes or watches."""
    found: set[str] = set()
    for item in written:
        if item.transition is COMPLETED:  # nearly always
            found.add("ended")
            continue
        state = item.transition.state
        if state is JobState.PENDING:
            found.add(f"ready:{item.claim.queue}")
        elif state in ENDED:
            found.add("ended")
        else:
            found.add("scheduled")
    return found
