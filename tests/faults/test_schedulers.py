"""Tests of several schedulers on one store, and of the checks themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.domain.strategies import a_job
from tests.faults import schedulers
from tests.faults.checks import Verdict
from tests.faults.kit import Harness, open_harness
from tests.faults.schedulers import PLANS, SECOND, Effect, check_each_fire, check_each_second

from tidemill.domain.job import Details, JobRow
from tidemill.domain.schedules import Fired

SINCE = datetime(2026, 3, 28, 12, 0, 30, 500_000, tzinfo=UTC)
UNTIL = SINCE + 10 * SECOND
SCHEDULE = uuid4()
SKIPS, ONCE, EVERYTHING, *_ = PLANS
processes = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc")


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as harness:
        yield harness


@pytest.fixture
def on_postgres(fresh_postgres_url: str, tmp_path: Path) -> Iterator[Harness]:
    with open_harness(fresh_postgres_url, tmp_path) as harness:
        yield harness


@pytest.mark.long
@processes
def test_every_second_fires_once_on_sqlite_despite_kills(on_sqlite: Harness) -> None:
    verdict = schedulers.run(on_sqlite, 1, schedulers=3, seconds=15, rest=2.5)
    assert verdict.violations == []


@pytest.mark.long
@processes
def test_every_second_fires_once_on_postgres_despite_kills(on_postgres: Harness) -> None:
    verdict = schedulers.run(on_postgres, 2, schedulers=3, seconds=25, rest=5.0)
    assert verdict.violations == []


# Checks --------------------------------------------------------------------------------------------------------------------


def ten_fires() -> list[Fired]:
    """Return a fire with a job for each of ten seconds."""
    first = SINCE + SECOND / 2
    return [Fired(SCHEDULE, first + n * SECOND, job_id=uuid4()) for n in range(10)]


def second_violations(
    fires: Sequence[Fired], plan: schedulers.Plan = SKIPS, *, stepped: bool = False
) -> list[str]:
    verdict = Verdict()
    check_each_second(verdict, plan, fires, SINCE, UNTIL, stepped=stepped)
    return [violation[:2] for violation in verdict.violations]


def effect_violations(
    fires: Sequence[Fired], effects: Sequence[Effect], jobs: dict[UUID, JobRow] | None = None
) -> list[str]:
    verdict = Verdict()
    check_each_fire(verdict, SKIPS, fires, jobs_of(fires) if jobs is None else jobs, effects)
    return [violation[:2] for violation in verdict.violations]


def jobs_of(fires: Sequence[Fired], crashes: int = 0) -> dict[UUID, JobRow]:
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


def test_a_fire_for_every_second_is_correct() -> None:
    fires = ten_fires()
    assert second_violations(fires) == []
    assert effect_violations(fires, effects_of(fires)) == []


def test_a_second_without_a_fire_is_detected() -> None:
    fires = ten_fires()
    assert second_violations(fires[:4] + fires[5:]) == ["S5"]
    assert second_violations(fires[:4] + fires[5:], EVERYTHING) == ["S5", "S6"]
    assert second_violations([]) == ["S3"]


def skipped_run(fires: Sequence[Fired]) -> Fired:
    """Return the row that records these fires as skipped."""
    first, last = fires[0].fire_at.isoformat(), fires[-1].fire_at.isoformat()
    reason = f"misfire: {len(fires)} fires from {first} until {last} were skipped"
    return fires[-1]._replace(job_id=None, reason=reason)


def test_only_a_clock_step_excuses_seconds_both_skipped_and_fired() -> None:
    fires = ten_fires()
    rows = [*fires[:5], skipped_run(fires[4:7]), *fires[7:]]
    assert second_violations(rows) == ["S5"]
    assert second_violations(rows, stepped=True) == []
    assert second_violations([*fires[:2], *rows[3:]], stepped=True) == ["S5"]


def test_skipped_seconds_must_match_the_recorded_number() -> None:
    fires = ten_fires()
    row = skipped_run(fires[4:7])
    assert second_violations([*fires[:4], row, *fires[7:]]) == []
    assert second_violations([*fires[:3], row, *fires[7:]]) == ["S5"]
    assert second_violations([*fires[:4], row, *fires[7:]], EVERYTHING) == ["S6"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda fires: [*fires, fires[-1]], "S1"),
        (lambda fires: [fires[0]._replace(fire_at=SINCE - SECOND / 2), *fires], "S2"),
        (lambda fires: [*fires[:5], fires[5]._replace(fire_at=fires[5].fire_at + SECOND / 4), *fires[5:]], "S4"),
    ],
)  # fmt: skip
def test_an_extra_fire_is_detected(change: object, rule: str) -> None:
    assert callable(change)
    assert rule in second_violations(change(ten_fires()))


def test_a_schedule_that_stopped_firing_is_detected() -> None:
    verdict = Verdict()
    check_each_second(verdict, SKIPS, ten_fires(), SINCE, UNTIL + timedelta(minutes=1))
    assert [violation[:2] for violation in verdict.violations] == ["S3"]


def test_a_missing_or_extra_effect_is_detected() -> None:
    fires = ten_fires()
    effects = effects_of(fires)
    assert effect_violations(fires, effects[1:]) == ["S9"]
    assert effect_violations(fires, [*effects, effects[0]]) == ["S9"]
    assert effect_violations(fires, [*effects, effects[0]._replace(job=uuid4())]) == ["S9", "S9"]
    assert effect_violations(fires[1:], effects) == ["S9"]
    assert effect_violations(fires, effects, {}) == ["S8"] * 10


def test_only_a_killed_worker_explains_a_repeated_effect() -> None:
    fires = ten_fires()
    effects = [*effects_of(fires), effects_of(fires)[0]._replace(token=2)]
    assert effect_violations(fires, effects, jobs_of(fires, crashes=1)) == []
    assert effect_violations(fires, effects, jobs_of(fires)) == ["S9"]


def test_a_skipped_fire_has_a_reason_and_no_effect() -> None:
    fires = ten_fires()
    effects = effects_of(fires)
    silent = [fires[0]._replace(job_id=None), *fires[1:]]
    assert effect_violations(silent, effects[1:]) == ["S7"]
    assert effect_violations(silent, effects) == ["S7", "S7"]


def test_a_job_of_another_fire_is_detected() -> None:
    fires = ten_fires()
    jobs = jobs_of(fires)
    first, second = (fire.job_id for fire in fires[:2])
    assert first is not None
    assert second is not None
    jobs[first] = a_job(id=first, details=jobs[second].details)
    assert effect_violations(fires, effects_of(fires), jobs) == ["S8"]
