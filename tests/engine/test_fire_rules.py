"""Tests of the misfire rules, the overlap rules and the limits of definitions."""

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
def test_after_three_hours_of_downtime_the_misfire_rule_decides_what_runs(
    tower: Tower, rule: Any, said: list[tuple[str, str | None]], runs: int
) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly", misfire=rule)
    assert len(tower.after(3 * HOUR + 5 * MINUTE)) == runs
    assert tower.said("hourly") == said
    assert tower.app.schedules.get("hourly").next_fire_at == MIDNIGHT + 4 * HOUR
    assert len(tower.after(55 * MINUTE)) == 1


# Overlap -----------------------------------------------------------------------------------------------------------------


def hold_one(tower: Tower, overlap: Any) -> Any:
    """An hourly schedule whose first job is claimed."""
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


def test_with_skip_a_fire_during_a_job_is_recorded_as_skipped(tower: Tower) -> None:
    claim = hold_one(tower, "skip")
    tower.after(HOUR)
    assert tower.said("hourly")[-1] == ("02:00", "overlap: the previous job has not ended")
    assert states(tower) == [S.RUNNING]
    let_go(tower, claim)
    assert tower.after(HOUR) == ["tick"]


def test_with_allow_jobs_of_one_schedule_run_side_by_side(tower: Tower) -> None:
    hold_one(tower, "allow")
    assert tower.after(HOUR) == ["tick"]
    assert states(tower) == [S.RUNNING, S.COMPLETED]


def test_with_queue_one_job_waits_until_the_previous_one_has_ended(tower: Tower) -> None:
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


def test_a_waiting_job_is_found_by_another_process(tower: Tower) -> None:
    claim = hold_one(tower, "queue")
    tower.after(HOUR)
    let_go(tower, claim)
    tower.testing = tower.app.testing()
    assert tower.after(SECOND) == ["tick"]


def test_with_cancel_the_previous_job_gets_a_cancel_request(tower: Tower) -> None:
    claim = hold_one(tower, "cancel")
    assert tower.after(HOUR) == ["tick"]
    assert tower.said("hourly")[-1] == ("02:00", "overlap: the previous job is cancelled")
    (first, second) = tower.jobs()
    assert (first.id, first.cancel_reason) == (
        claim.id,
        "overlap: the next job of its schedule takes its place",
    )
    assert second.state is S.COMPLETED


def test_with_cancel_an_unclaimed_job_is_cancelled_at_once(tower: Tower) -> None:
    tower.app.schedules.add(tower.note, Every(HOUR), "hourly", overlap="cancel")
    for _ in range(2):
        tower.testing.advance(HOUR)
        tower.testing.fire()
    assert states(tower) == [S.CANCELLED, S.PENDING]


def test_simultaneous_fires_follow_the_overlap_rule(tower: Tower) -> None:
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


# The definition's limit --------------------------------------------------------------------------------------------------


def test_a_fire_is_skipped_while_a_manual_job_fills_its_definition(tower: Tower) -> None:
    made = tower.app.definitions.save("report", tower.note)
    tower.app.schedules.add(made, Every(HOUR), "report")
    tower.app.schedules.add(made, Every(HOUR), "allowed", overlap="allow")
    by_hand = tower.app.definitions.trigger("report").reschedule(3 * HOUR)
    tower.after(HOUR)
    reason = "overlap: definition report has 1 of 1 jobs under way"
    assert tower.said("report") == [("01:00", reason)]
    assert tower.said("allowed") == [("01:00", None)]
    by_hand.cancel()
    assert tower.after(HOUR) == ["tick", "tick"]
    assert tower.said("report") == [("01:00", reason), ("02:00", None)]


def test_a_definition_with_room_fires_next_to_a_manual_job(tower: Tower) -> None:
    made = tower.app.definitions.save("report", tower.note, max_concurrent=2)
    tower.app.schedules.add(made, Every(HOUR), "report")
    tower.app.definitions.trigger("report").reschedule(3 * HOUR)
    assert tower.after(HOUR) == ["tick"]


def test_with_on_busy_refuse_a_fire_is_skipped_whatever_the_overlap_rule(tower: Tower) -> None:
    made = tower.app.definitions.save("report", tower.note, on_busy="refuse")
    tower.app.schedules.add(made, Every(HOUR), "report", overlap="allow")
    by_hand = tower.app.definitions.trigger("report").reschedule(3 * HOUR)
    assert tower.after(HOUR) == []
    assert tower.said("report") == [("01:00", f"unique: job {by_hand.id} holds the key")]
