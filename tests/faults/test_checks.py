"""The verdict sees what it is there to see: each promise is broken on purpose once, and noticed by its number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.faults.checks import Verdict, judge
from tests.faults.kit import Ground, a_ground

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish, Transition
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ExecutionState, JobState
from tidemill.ids import new_id

PID, OTHER = 101, 202
AGAIN = Transition(JobState.PENDING, ExecutionState.CRASHED, "gone", crashed=True)


class Story:
    """Jobs that are claimed and finished by hand, with a ledger that is written by hand as well."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.workers = {pid: Worker(new_id(), f"w{pid}", pid=pid) for pid in (PID, OTHER)}
        for worker in self.workers.values():
            ground.store.register(worker, lease=timedelta(hours=1))

    def ask(self) -> UUID:
        return self.ground.enqueue("noop", [{}])[0]

    def claim(self, pid: int = PID) -> Claim:
        store = self.ground.store
        request = ClaimRequest(self.workers[pid].id, tuple(store.lanes()), limit=1, tasks=("noop",))
        (claim,) = store.claim(request)
        return claim

    def note(self, kind: str, claim: Claim, pid: int = PID) -> None:
        with self.ground.ledger.path.open("a") as file:
            file.write(f"{kind} {claim.id} {claim.token} {claim.attempt} {pid} 1 1.0\n")

    def finish(self, claim: Claim, transition: Transition = COMPLETED, result: str | None = None) -> None:
        assert not self.ground.store.finish([Finish(claim, transition, result or str(claim.token))])

    def well(self, pid: int = PID) -> Claim:
        """A job from its beginning to its good end."""
        claim = self.claim(pid)
        self.note("B", claim, pid)
        self.note("E", claim, pid)
        self.finish(claim)
        return claim


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    with a_ground(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as ground:
        yield Story(ground)


def laws(verdict: Verdict) -> set[str]:
    return {violation.split()[0] for violation in verdict.violations}


def test_a_good_run_is_found_good(story: Story) -> None:
    story.ask()
    story.well()
    assert judge(story.ground).violations == []


def test_a_second_run_after_a_kill_is_explained_by_it(story: Story) -> None:
    story.ask()
    claim = story.claim()
    story.note("B", claim)
    story.finish(claim, AGAIN)
    story.well(OTHER)
    assert judge(story.ground, culprits={PID}).violations == []
    assert laws(judge(story.ground)) == {"I9"}


def lose(story: Story) -> None:
    story.ground.ledger.accept([new_id()])


def leave_open(story: Story) -> None:
    story.ask()


def begin_twice(story: Story) -> None:
    story.ask()
    story.note("B", story.well())


def run_unclaimed(story: Story) -> None:
    story.ask()
    story.note("B", story.well()._replace(token=2))


def take_a_zombie_s_result(story: Story) -> None:
    story.ask()
    claim = story.claim()
    story.note("B", claim)
    story.note("E", claim)
    story.finish(claim, result="7")


def let_another_end_it(story: Story) -> None:
    story.ask()
    claim = story.claim()
    story.note("B", claim)
    story.note("E", claim, OTHER)
    story.finish(claim)


def end_badly(story: Story) -> None:
    story.ask()
    story.finish(story.claim(), Transition(JobState.FAILED, ExecutionState.FAILED, "bad"))


def burn_an_attempt(story: Story) -> None:
    story.ask()
    story.finish(story.claim(), Transition(JobState.PENDING, ExecutionState.RELEASED, "stop", refund=False))
    story.well()


def give_up_the_innocent(story: Story) -> None:
    story.ask()
    for _ in range(2):
        story.finish(story.claim(), AGAIN)
    story.finish(
        story.claim(), Transition(JobState.DEAD_LETTERED, ExecutionState.CRASHED, "crash_loop", crashed=True)
    )


@pytest.mark.parametrize(
    ("crime", "law"),
    [
        (lose, "I1"),
        (leave_open, "I2"),
        (begin_twice, "I9"),
        (run_unclaimed, "I9"),
        (take_a_zombie_s_result, "I6"),
        (let_another_end_it, "I6"),
        (end_badly, "I2"),
        (burn_an_attempt, "I8"),
        (give_up_the_innocent, "I7"),
    ],
)
def test_a_broken_promise_is_noticed(story: Story, crime: Callable[[Story], None], law: str) -> None:
    crime(story)
    assert law in laws(judge(story.ground))
