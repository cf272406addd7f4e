"""Tests of claims that the database executes after the worker gave them up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.engine.harness import Harness, opened

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import JobState
from tidemill.engine.exchange import recovery
from tidemill.engine.runner.runner import Runner
from tidemill.ids import new_id

S = JobState


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    monkeypatch.setattr(recovery, "LOOK_BACK", (0.05,) * 1000)  # as long as the test needs
    with opened() as harness:
        yield harness


def claimed_late(harness: Harness, runner: Runner, *, start: bool) -> NewJob:
    """Claim a job as a database does that still executes the statement of a closed connection."""
    store, job = harness.line.real, NewJob(new_id(), "work")
    with store.transaction():
        store.enqueue([job])
        (claim,) = store.claim(ClaimRequest(runner.worker, store.lanes(), 1, start=start))
        assert claim.id == job.id
    return job


@pytest.mark.parametrize("start", [True, False])
def test_a_job_claimed_after_its_claim_was_given_up_is_run(harness: Harness, start: bool) -> None:
    @harness.app.task(name="work")
    async def work() -> str:
        return "done"

    with harness.runner() as runner:
        harness.line.lose_answer("claim", "step")
        first = work.enqueue()
        harness.becomes(first, S.COMPLETED)
        assert harness.line.calls_of("held")
        job = claimed_late(harness, runner, start=start)
        harness.becomes(job.id, S.COMPLETED)
    (execution,) = harness.line.real.executions([job.id], tenant=ALL_TENANTS)
    assert execution.worker == runner.worker


def test_the_worker_does_not_look_back_after_calls_without_errors(harness: Harness) -> None:
    @harness.app.task(name="work")
    async def work() -> str:
        return "done"

    with harness.runner():
        for _ in range(3):
            harness.becomes(work.enqueue(), S.COMPLETED)
        harness.line.refuse_busy("claim", "step")  # this error means that the call had no effect
        harness.becomes(work.enqueue(), S.COMPLETED)
    assert harness.line.calls_of("held") == 0
