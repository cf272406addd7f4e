"""Firing by the rules: what is made up for after a while down, and what happens while an earlier job still lives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engine.fire_kit import HOUR, MIDNIGHT, MINUTE, SECOND, Tower, on_each_store

from tidemill import All, Every
from tidemill.domain.states import JobState

S = JobState


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def tower(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tower]:
    with on_each_store(request, tmp_path) as tower:
        yield tower


# Misfires ----------------------------------------------------------------------------------------------------------------

LONG_SKIP = "misfire: {} fires from 2026-01-01T{}:00:00+00:00 until 2026-01-01T{}:00:00+00:00 were skipped"


@pytest.mark.parametrize(
    ("rule", "said", "runs"),
    [
        ("skip", [("03:00", LONG_SKIP.format(3, "01", "03"))], 0),
        ("once", [("02:00", LONG_SKIP.format(2, "01", "02")), ("03:00", None)], 1),
        (All(limit=100), [("01:00", None), ("02:00", None), ("03:00", None)], 3),
        (
            All(limit=2),
            [
                ("01:00", "misfire: the fire of 2026-01-01T01:00:00+00:00 was skipped"),
                ("02:00", None),
                ("03:00", None),
            ],
            2,
        ),
    ],
    ids=["skip", "once", "all", "all, two at most"],
)
def test_after_three_hours_down_the_misfire_rule_says_what_is_made_up_for(
    tower: Tower, rule: Any, said: list[tuple[str, str | None]], runs: int
) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly", misfire=rule)
    assert len(tower.after(3 * HOUR + 5 * MINUTE)) == runs
    assert tower.said("hourly") == said
    assert tower.app.schedules.get("hourly").next_fire_at == MIDNIGHT + 4 * HOUR
    assert len(tower.after(55 * MINUTE)) == 1


# Overlap -----------------------------------------------------------------------------------------------------------------


def hold_one(tower: Tower, overlap: Any) -> Any:
    """An hourly schedule whose first job is in a worker's hands."""
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly", overlap=overlap)
    tower.testing.advance(HOUR)
    tower.testing.fire()
    tower.testing._clock_in()
    claim = tower.testing._claim()
    assert claim is not None
    return claim


def let_go(tower: Tower, claim: Any) -> None:
    from tidemill.domain.decide import COMPLETED
    from tidemill.domain.job import Finish

    assert not tower.store.finish([Finish(claim, COMPLETED)], now=tower.clock.now())


def states(tower: Tower) -> list[JobState]:
    return [job.state for job in tower.jobs()]


def test_with_skip_a_fire_during_a_job_is_written_down_as_skipped(tower: Tower) -> None:
    claim = hold_one(tower, "skip")
    tower.after(HOUR)
    assert tower.said("hourly")[-1] == ("02:00", "overlap: the previous job has not ended")
    assert states(tower) == [S.RUNNING]
    let_go(tower, claim)
    assert tower.after(HOUR) == ["tick"]


def test_with_allow_jobs_of_one_schedule_live_side_by_side(tower: Tower) -> None:
    hold_one(tower, "allow")
    assert tower.after(HOUR) == ["tick"]
    assert states(tower) == [S.RUNNING, S.COMPLETED]


def test_with_queue_one_job_waits_and_is_woken_when_the_one_before_it_has_ended(tower: Tower) -> None:
    claim = hold_one(tower, "queue")
    assert tower.after(HOUR) == []
    assert tower.after(HOUR) == []
    assert states(tower) == [S.RUNNING, S.WAITING]
    assert [reason for _, reason in tower.said("hourly")] == [
        None,
        "overlap: waits for the previous job",
        "overlap: one job is waiting already",
    ]
    let_go(tower, claim)
    assert tower.after(SECOND) == ["tick"]
    assert states(tower) == [S.COMPLETED, S.COMPLETED]


def test_a_job_that_waits_is_found_by_one_who_did_not_put_it_there(tower: Tower) -> None:
    claim = hold_one(tower, "queue")
    tower.after(HOUR)
    let_go(tower, claim)
    tower.testing = tower.app.testing()
    assert tower.after(SECOND) == ["tick"]


def test_with_cancel_the_job_before_is_asked_to_stop_and_the_next_is_enqueued(tower: Tower) -> None:
    claim = hold_one(tower, "cancel")
    assert tower.after(HOUR) == ["tick"]
    assert tower.said("hourly")[-1] == ("02:00", "overlap: the previous job is cancelled")
    (first, second) = tower.jobs()
    assert (first.id, first.cancel_reason) == (
        claim.id,
        "overlap: the next job of its schedule takes its place",
    )
    assert second.state is S.COMPLETED


def test_with_cancel_a_job_nobody_holds_ends_at_once(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly", overlap="cancel")
    for _ in range(2):
        tower.testing.advance(HOUR)
        tower.testing.fire()
    assert states(tower) == [S.CANCELLED, S.PENDING]


def test_fires_that_come_together_do_not_pass_over_the_overlap_rule(tower: Tower) -> None:
    for overlap in ("skip", "cancel", "queue", "allow"):
        tower.app.schedules.add(tower.note, Every(SECOND), overlap, overlap=overlap)
    tower.testing.advance(5 * SECOND)
    tower.testing.fire()
    made = {
        key: [bool(fire.job_id) for fire in tower.fires(key)] for key in ("skip", "cancel", "queue", "allow")
    }
    assert made == {
        "skip": [True, False, False, False, False],
        "cancel": [False, False, False, False, True],
        "queue": [True, True, False, False, False],
        "allow": [True] * 5,
    }
