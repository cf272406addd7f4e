"""Limits while runners are killed, for a while; and what looks for broken promises finds them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.limits import highest, outside_spans, run, use

processes = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="processes are looked at through /proc"
)


@pytest.mark.long
@processes
def test_no_limit_is_passed_in_a_file_while_runners_are_killed(tmp_path: Path) -> None:
    verdict = run(f"sqlite:///{tmp_path}/jobs.db", tmp_path, claims=2000, kills=3, seed=1)
    assert verdict.violations == []


@pytest.mark.long
@processes
def test_no_limit_is_passed_in_a_database_while_runners_are_killed(
    fresh_postgres_url: str, tmp_path: Path
) -> None:
    verdict = run(fresh_postgres_url, tmp_path, claims=2000, kills=3, seed=1)
    assert verdict.violations == []


def test_what_overlaps_is_counted_and_what_only_touches_is_not() -> None:
    assert highest([(0.0, 1.0), (1.0, 2.0), (1.0, 3.0), (2.5, 2.6)]) == 2
    assert highest([(0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]) == 3


def test_one_that_was_killed_ran_until_then() -> None:
    lines = ["B one j1 1 7 1.0", "B one j2 1 8 1.5", "E one j2 1 8 2.0", "B five j3 2 7 1.0"]
    assert outside_spans(lines, {7: 4.0}) == {"one": [(1.5, 2.0), (1.0, 4.0)], "five": [(1.0, 4.0)]}


def test_a_limit_is_used_as_far_as_its_time_is_filled() -> None:
    assert use([(0.0, 1.0), (1.0, 2.0)], 1) == pytest.approx(1.0)
    assert use([(0.0, 0.5), (1.0, 2.0)], 1) == pytest.approx(0.5)
