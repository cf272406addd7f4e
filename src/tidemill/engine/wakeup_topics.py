"""The wake-up topics of written jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.states import ENDED, JobState

if TYPE_CHECKING:
    from tidemill.engine.exchange.finisher import Settled


def topic_of(job: NewJob) -> str:
    """The wake-up topic of a new job: the workers of its queue, or the duty that promotes scheduled jobs."""
    return "scheduled" if job.run_at or job.delay else f"ready:{job.queue}"


def topics(written: Sequence[Settled | Finish]) -> set[str]:
    """The wake-up topics of these writes: workers of a queue, waiters for a result, and the duty that promotes jobs."""
    # Nearly all jobs complete without follow-up jobs, and those need no look at each of them.
    others = [item for item in written if item.transition is not COMPLETED or item.then]
    found = {"ended"} if len(others) < len(written) else set()
    for item in others:
        if item.transition is COMPLETED:
            found.add("ended")
            found.update(topic_of(job) for job in item.then)
            continue
        state = item.transition.state
        if state is JobState.PENDING:
            found.add(f"ready:{item.claim.queue}")
        elif state in ENDED:
            found.add("ended")
            # The end may have made waiting jobs of a flow unreachable.
            if item.claim.detailed:
                found.add("cascade")
        else:
            found.add("scheduled")
            if item.additions is not None and item.additions.waits:
                # A signal that was sent in the meantime did not find the job suspended.
                found.add("signals")
    return found
