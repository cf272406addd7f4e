"""Several schedulers on one store, for a while; and what looks for broken promises finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.domain.strategies import a_job
from tests.faults import schedulers
from tests.faults.checks import Verdict
from tests.faults.kit import Ground, a_ground
from tests.faults.schedulers import PLANS, SECOND, Effect, each_fire_one_effect, each_second_once

from tidemill.domain.job import Details, Job
from tidemill.domain.timetable import Fired

SINCE = datetime(2026, 3, 28, 12, 0, 30, 500_000, tzinfo=UTC)
UNTIL = SINCE + 10 * SECOND
SCHEDULE = uuid4()
SKIPS, ONCE, EVERYTHING, *_ = PLANS
processes = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are looked at through /proc"
)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Ground]:
    with a_ground(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as ground:
        yield ground


@pytest.fixture
def on_postgres(fresh_postgres_url: str, tmp_path: Path) -> Iterator[Ground]:
    with a_ground(fresh_postgres_url, tmp_path) as ground:
        yield ground


@pytest.mark.long
@processes
def test_every_second_fires_once_in_a_file_while_schedulers_are_killed(on_sqlite: Ground) -> None:
    verdict = schedulers.run(on_sqlite, 1, schedulers=3, seconds=15, rest=2.5)
    assert verdict.violations == []


@pytest.mark.long
@processes
def test_every_second_fires_once_in_a_database_while_leaders_are_killed(on_postgres: Ground) -> None:
    verdict = schedulers.run(on_postgres, 2, schedulers=3, seconds=25, rest=5.0)
    assert verdict.violations == []


# What looks for broken promises ------------------------------------------------------------------------------------------


def ten_fires() -> list[Fired]:
    """A fire with a job for each of ten seconds."""
    first = SINCE + SECOND / 2
    return [Fired(SCHEDULE, first + n * SECOND, job_id=uuid4()) for n in range(10)]


def seconds_judged(fires: Sequence[Fired], plan: schedulers.Plan = SKIPS) -> list[str]:
    verdict = Verdict()
    each_second_once(verdict, plan, fires, SINCE, UNTIL)
    return [violation[:2] for violation in verdict.violations]


def effects_judged(
    fires: Sequence[Fired], effects: Sequence[Effect], jobs: dict[UUID, Job] | None = None
) -> list[str]:
    verdict = Verdict()
    each_fire_one_effect(verdict, SKIPS, fires, jobs_of(fires) if jobs is None else jobs, effects)
    return [violation[:2] for violation in verdict.violations]


def jobs_of(fires: Sequence[Fired], crashes: int = 0) -> dict[UUID, Job]:
    return {
        fire.job_id: a_job(
            id=fire.job_id,
            crashes=crashes,
            details=Details(schedule_id=fire.schedule_id, fire_at=fire.fire_at),
        )
        for fire in fires
        if fire.job_id is not None
    }


def effects_of(fires: Sequence[Fired]) -> list[Effect]:
    return [Effect(SKIPS.key, fire.fire_at, fire.job_id, 1) for fire in fires if fire.job_id is not None]


def test_ten_seconds_with_ten_fires_are_as_promised() -> None:
    fires = ten_fires()
    assert seconds_judged(fires) == []
    assert effects_judged(fires, effects_of(fires)) == []


def test_a_second_without_a_fire_is_found() -> None:
    fires = ten_fires()
    assert seconds_judged(fires[:4] + fires[5:]) == ["S5"]
    assert seconds_judged(fires[:4] + fires[5:], EVERYTHING) == ["S5", "S6"]
    assert seconds_judged([]) == ["S3"]


def test_seconds_that_were_skipped_by_the_rule_are_accepted_if_their_number_is_right() -> None:
    fires = ten_fires()
    told = fires[6]._replace(job_id=None, reason="misfire: 3 fires from 12:00:35 until 12:00:37 were skipped")
    assert seconds_judged([*fires[:4], told, *fires[7:]]) == []
    assert seconds_judged([*fires[:3], told, *fires[7:]]) == ["S5"]
    assert seconds_judged([*fires[:4], told, *fires[7:]], EVERYTHING) == ["S6"]


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (lambda fires: [*fires, fires[-1]], "S1"),
        (lambda fires: [fires[0]._replace(fire_at=SINCE - SECOND / 2), *fires], "S2"),
        (lambda fires: [*fires[:5], fires[5]._replace(fire_at=fires[5].fire_at + SECOND / 4), *fires[5:]], "S4"),
    ],
)  # fmt: skip
def test_a_fire_too_many_is_found(change: object, law: str) -> None:
    assert callable(change)
    assert law in seconds_judged(change(ten_fires()))


def test_a_schedule_that_stopped_firing_is_found() -> None:
    verdict = Verdict()
    each_second_once(verdict, SKIPS, ten_fires(), SINCE, UNTIL + timedelta(minutes=1))
    assert [violation[:2] for violation in verdict.violations] == ["S3"]


def test_an_effect_too_few_or_too_many_is_found() -> None:
    fires = ten_fires()
    effects = effects_of(fires)
    assert effects_judged(fires, effects[1:]) == ["S9"]
    assert effects_judged(fires, [*effects, effects[0]]) == ["S9"]
    assert effects_judged(fires, [*effects, effects[0]._replace(job=uuid4())]) == ["S9", "S9"]
    assert effects_judged(fires[1:], effects) == ["S9"]
    assert effects_judged(fires, effects, {}) == ["S8"] * 10


def test_a_second_effect_of_the_same_job_is_explained_by_a_killed_worker_only() -> None:
    fires = ten_fires()
    effects = [*effects_of(fires), effects_of(fires)[0]._replace(token=2)]
    assert effects_judged(fires, effects, jobs_of(fires, crashes=1)) == []
    assert effects_judged(fires, effects, jobs_of(fires)) == ["S9"]


def test_a_skipped_fire_says_why_and_has_no_effect() -> None:
    fires = ten_fires()
    effects = effects_of(fires)
    silent = [fires[0]._replace(job_id=None), *fires[1:]]
    assert effects_judged(silent, effects[1:]) == ["S7"]
    assert effects_judged(silent, effects) == ["S7", "S7"]


def test_a_job_of_another_fire_is_found() -> None:
    fires = ten_fires()
    jobs = jobs_of(fires)
    first, second = (fire.job_id for fire in fires[:2])
    assert first is not None
    assert second is not None
    jobs[first] = a_job(id=first, details=jobs[second].details)
    assert effects_judged(fires, effects_of(fires), jobs) == ["S8"]
