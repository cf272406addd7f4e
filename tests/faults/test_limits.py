"""Tests of limits while runners are killed, and of the checks themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.limits import highest, outside_spans, run, use

processes = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc")


@pytest.mark.long
@processes
def test_kills_exceed_no_limit_on_sqlite(tmp_path: Path) -> None:
    verdict = run(f"sqlite:///{tmp_path}/jobs.db", tmp_path, claims=2000, kills=3, seed=1)
    assert verdict.violations == []


@pytest.mark.long
@processes
def test_kills_exceed_no_limit_on_postgres(fresh_postgres_url: str, tmp_path: Path) -> None:
    verdict = run(fresh_postgres_url, tmp_path, claims=2000, kills=3, seed=1)
    assert verdict.violations == []


def test_touching_spans_do_not_overlap() -> None:
    assert highest([(0.0, 1.0), (1.0, 2.0), (1.0, 3.0), (2.5, 2.6)]) == 2
    assert highest([(0.0, 2.0), (1.0, 3.0), (1.5, 1.6)]) == 3


def test_a_killed_handler_ran_until_the_kill() -> None:
    lines = ["B one j1 1 7 1.0", "B one j2 1 8 1.5", "E one j2 1 8 2.0", "B five j3 2 7 1.0"]
    assert outside_spans(lines, {7: 4.0}) == {"one": [(1.5, 2.0), (1.0, 4.0)], "five": [(1.0, 4.0)]}


def test_utilisation_is_the_filled_share_of_the_time() -> None:
    assert use([(0.0, 1.0), (1.0, 2.0)], 1) == pytest.approx(1.0)
    assert use([(0.0, 0.5), (1.0, 2.0)], 1) == pytest.approx(0.5)
