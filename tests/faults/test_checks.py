"""Tests of the invariant checks: each invariant is broken once and detected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.faults.checks import Verdict, judge
from tests.faults.kit import Harness, open_harness

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish, Transition
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ExecutionState, JobState
from tidemill.ids import new_id

PID, OTHER = 101, 202
CRASHED = Transition(JobState.PENDING, ExecutionState.CRASHED, "gone", crashed=True)


class Scenario:
    """Jobs claimed and finished by hand, with a handmade ledger."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.workers = {pid: Worker(new_id(), f"w{pid}", pid=pid) for pid in (PID, OTHER)}
        for worker in self.workers.values():
            harness.store.register(worker, lease=timedelta(hours=1))

    def enqueue(self) -> UUID:
        return self.harness.enqueue("noop", [{}])[0]

    def claim(self, pid: int = PID) -> Claim:
        store = self.harness.store
        request = ClaimRequest(self.workers[pid].id, tuple(store.lanes()), limit=1, tasks=("noop",))
        (claim,) = store.claim(request)
        return claim

    def note(self, kind: str, claim: Claim, pid: int = PID) -> None:
        with self.harness.ledger.path.open("a") as file:
            file.write(f"{kind} {claim.id} {claim.token} {claim.attempt} {pid} 1 1.0\n")

    def finish(self, claim: Claim, transition: Transition = COMPLETED, result: str | None = None) -> None:
        assert not self.harness.store.finish([Finish(claim, transition, result or str(claim.token))])

    def complete(self, pid: int = PID) -> Claim:
        """Run a job from begin to success."""
        claim = self.claim(pid)
        self.note("B", claim, pid)
        self.note("E", claim, pid)
        self.finish(claim)
        return claim


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    with open_harness(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as harness:
        yield Scenario(harness)


def violated(verdict: Verdict) -> set[str]:
    return {violation.split()[0] for violation in verdict.violations}


def test_a_correct_run_has_no_violations(scenario: Scenario) -> None:
    scenario.enqueue()
    scenario.complete()
    assert judge(scenario.harness).violations == []


def test_a_kill_explains_a_repeated_run(scenario: Scenario) -> None:
    scenario.enqueue()
    claim = scenario.claim()
    scenario.note("B", claim)
    scenario.finish(claim, CRASHED)
    scenario.complete(OTHER)
    assert judge(scenario.harness, culprits={PID}).violations == []
    assert violated(judge(scenario.harness)) == {"I9"}


def lose_a_job(scenario: Scenario) -> None:
    scenario.harness.ledger.accept([new_id()])


def leave_a_job_open(scenario: Scenario) -> None:
    scenario.enqueue()


def begin_twice(scenario: Scenario) -> None:
    scenario.enqueue()
    scenario.note("B", scenario.complete())


def run_without_a_claim(scenario: Scenario) -> None:
    scenario.enqueue()
    scenario.note("B", scenario.complete()._replace(token=2))


def accept_a_zombie_result(scenario: Scenario) -> None:
    scenario.enqueue()
    claim = scenario.claim()
    scenario.note("B", claim)
    scenario.note("E", claim)
    scenario.finish(claim, result="7")


def let_another_process_end_it(scenario: Scenario) -> None:
    scenario.enqueue()
    claim = scenario.claim()
    scenario.note("B", claim)
    scenario.note("E", claim, OTHER)
    scenario.finish(claim)


def fail_on_its_own(scenario: Scenario) -> None:
    scenario.enqueue()
    scenario.finish(scenario.claim(), Transition(JobState.FAILED, ExecutionState.FAILED, "bad"))


def charge_a_released_job(scenario: Scenario) -> None:
    scenario.enqueue()
    scenario.finish(
        scenario.claim(), Transition(JobState.PENDING, ExecutionState.RELEASED, "stop", refund=False)
    )
    scenario.complete()


def dead_letter_a_job_that_never_started(scenario: Scenario) -> None:
    scenario.enqueue()
    for _ in range(2):
        scenario.finish(scenario.claim(), CRASHED)
    scenario.finish(
        scenario.claim(),
        Transition(JobState.DEAD_LETTERED, ExecutionState.CRASHED, "crash_loop", crashed=True),
    )


@pytest.mark.parametrize(
    ("violate", "invariant"),
    [
        (lose_a_job, "I1"),
        (leave_a_job_open, "I2"),
        (begin_twice, "I9"),
        (run_without_a_claim, "I9"),
        (accept_a_zombie_result, "I6"),
        (let_another_process_end_it, "I6"),
        (fail_on_its_own, "I2"),
        (charge_a_released_job, "I8"),
        (dead_letter_a_job_that_never_started, "I7"),
    ],
)
def test_a_broken_invariant_is_detected(
    scenario: Scenario, violate: Callable[[Scenario], None], invariant: str
) -> None:
    violate(scenario)
    assert invariant in violated(judge(scenario.harness))
