"""A short comparison over years; ``tests.domain.schedules.years`` is the full one."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from tests.domain.schedules.cases import CHOSEN, Case, cases
from tests.domain.schedules.clocks import ODD_ZONES, WallClock, day_number
from tests.domain.schedules.compare import compare
from tests.domain.schedules.rules import WallRule, cron_rule, fitting
from tests.domain.schedules.years import Part, do, parts

from tidemill.domain.schedule_rules import Cron, Daily
from tidemill.domain.triggers import cron, daily
from tidemill.domain.triggers.timeline import FixedTimes, RunningTimes

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("zone", "first_year"),
    [
        ("Europe/Berlin", 2026),
        ("Australia/Lord_Howe", 2026),
        ("Pacific/Apia", 2011),
        ("Africa/Casablanca", 2026),
        ("America/Havana", 2026),
        ("Antarctica/Troll", 2026),
        ("America/Sao_Paulo", 2018),
    ],
)
def test_a_year_of_schedules_has_no_extra_and_no_missing_fire(zone: str, first_year: int) -> None:
    counts = do(Part(zone, first_year, years=1, expressions=16, seed=7))
    assert counts.differences == []
    assert counts.wrong == 0
    assert counts.listed > 2_000


# The command compares the others too.
SPARSE = [expression for expression in CHOSEN if cron_rule(expression).a_day <= 200]


@pytest.mark.parametrize("expression", SPARSE)
def test_a_chosen_expression_is_right_on_clock_changes(expression: str) -> None:
    case = Case(expression, Cron(expression), cron_rule(expression))
    assert compare(case, _clock("Europe/Berlin", 2026)).differences == []


def _clock(zone: str, year: int, clocks: dict[tuple[str, int], WallClock] = {}) -> WallClock:  # noqa: B006
    if (zone, year) not in clocks:
        clocks[zone, year] = WallClock(zone, year, 1)
    return clocks[zone, year]


def _daily(at: str, second: int) -> Case:
    return Case(at, Daily(at), WallRule(fitting(lambda _: True), (second,)))


def test_the_oracle_follows_the_published_rule() -> None:
    clock = _clock("Europe/Berlin", 2026)
    gap, repeated = day_number(date(2026, 3, 29)), day_number(date(2026, 10, 25))
    half_past_two = 2 * 3600 + 1800
    assert list(clock.once(gap, [half_past_two])) == [_second("2026-03-29T01:00")]
    assert list(clock.once(repeated, [half_past_two])) == [_second("2026-10-25T00:30")]
    assert list(clock.whenever(gap, {150: [0]})) == []
    assert list(clock.whenever(repeated, {150: [0]})) == [
        _second("2026-10-25T00:30"),
        _second("2026-10-25T01:30"),
    ]
    inside = [at for at, _, _ in clock.changes if at > clock.start]
    assert inside == [_second("2026-03-29T01:00"), _second("2026-10-25T01:00")]
    assert [end - start for start, end in clock.pieces(gap)] == [23 * 3600]
    assert [end - start for start, end in clock.pieces(repeated)] == [25 * 3600]


def test_the_oracle_skips_the_missing_day_of_samoa() -> None:
    clock = _clock("Pacific/Apia", 2011)
    left_out = day_number(date(2011, 12, 30))
    assert clock.pieces(left_out) == []
    assert list(clock.once(left_out, [6 * 3600])) == [_second("2011-12-30T10:00")]
    assert list(clock.once(left_out + 1, [0])) == [_second("2011-12-30T10:00")]


def _second(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def test_fires_that_wrongly_follow_the_clock_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, clock = _daily("02:30", 2 * 3600 + 1800), _clock("Europe/Berlin", 2026)
    assert compare(case, clock).wrong == 0
    monkeypatch.setattr(daily, "FixedTimes", RunningTimes)
    counts = compare(case, clock)
    assert (counts.skipped, counts.extra) == (2, 2)  # counted from both ends
    assert "skipped 2026-03-29T01:00:00+00:00" in counts.differences[0]
    assert "extra 2026-10-25T01:30:00+00:00" in counts.differences[1]


def test_a_wrongly_skipped_hour_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case, clock = Case("hourly", Cron("0 * * * *"), cron_rule("0 * * * *")), _clock("Europe/Berlin", 2026)
    assert compare(case, clock).wrong == 0
    monkeypatch.setattr(cron, "RunningTimes", FixedTimes)
    counts = compare(case, clock)
    assert counts.skipped == 2
    assert counts.miscounted == 1


def test_every_kind_of_schedule_is_drawn_deterministically() -> None:
    drawn = cases(200, seed=1)
    assert len(drawn) == 200
    assert [case.label for case in drawn] == [case.label for case in cases(200, seed=1)]
    assert {type(case.trigger).__name__ for case in drawn} == {
        "Cron",
        "Daily",
        "Weekly",
        "Monthly",
        "MonthlyBusinessDay",
        "Every",
    }
    assert {case.exclude.roll for case in drawn if case.exclude is not None} == {"none", "next", "previous"}
    assert len([part.zone for part in parts(10, 60, 1, seed=1)]) == 60
    assert len(ODD_ZONES) >= 40


def test_the_command_reports_what_was_compared() -> None:
    words = [sys.executable, "-m", "tests.domain.schedules.years"]
    size = ["--years", "1", "--zones", "1", "--expressions", "9", "--processes", "1"]
    done = subprocess.run([*words, *size], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 doubled, 0 skipped, 0 extra, 0 miscounted" in done.stdout
    assert "1/1 zones" in done.stderr
