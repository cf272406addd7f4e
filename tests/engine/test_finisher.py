"""Tests of the wake-up topics of written outcomes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.engine.kit import a_claim

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob, Transition
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.wakeup_topics import topics
from tidemill.ids import new_id

MINUTE = timedelta(minutes=1)
DONE = Finish(a_claim(), COMPLETED)
FAILED = Finish(a_claim(), Transition(JobState.FAILED, ExecutionState.FAILED))
RELEASED = Finish(a_claim(), Transition(JobState.PENDING, ExecutionState.RELEASED))
RETRIED = Finish(a_claim(), Transition(JobState.SCHEDULED, ExecutionState.FAILED, delay=MINUTE))
FOLLOWED = DONE._replace(then=(NewJob(new_id(), "next", "{}", queue="mail"),))
FOLLOWED_LATER = DONE._replace(then=(NewJob(new_id(), "next", "{}", delay=MINUTE),))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([], set()),
        ([DONE, DONE], {"ended"}),
        ([FAILED], {"ended"}),
        ([RELEASED], {f"ready:{RELEASED.claim.queue}"}),
        ([RETRIED], {"scheduled"}),
        ([FOLLOWED], {"ended", "ready:mail"}),
        ([FOLLOWED_LATER], {"ended", "scheduled"}),
        ([RELEASED, DONE, FOLLOWED], {"ended", f"ready:{RELEASED.claim.queue}", "ready:mail"}),
    ],
)
def test_each_write_wakes_the_processes_that_wait_for_it(written: list[Finish], expected: set[str]) -> None:
    assert topics(written) == expected
