"""Tests of rates at the handler on every store, and of the ledger check."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.rates import judge, most_within, run, shortest_span

EXACT = "no window holds more starts than the rate"


def broken(verdict: object) -> list[str]:
    """Return violations that do not depend on the machine: a busy one cannot use all of a rate."""
    return [
        violation
        for violation in getattr(verdict, "violations", [])
        if not violation.startswith("at least 95 %")
    ]


@pytest.mark.long
@pytest.mark.parametrize("burst", [None, 3])
def test_a_rate_holds_on_sqlite(tmp_path: Path, burst: int | None) -> None:
    verdict = run(f"sqlite:///{tmp_path}/jobs.db", tmp_path, 10, seconds=5, processes=2, burst=burst)
    assert broken(verdict) == []


@pytest.mark.long
@pytest.mark.parametrize("burst", [None, 3])
def test_a_rate_holds_on_postgres(fresh_postgres_url: str, tmp_path: Path, burst: int | None) -> None:
    verdict = run(fresh_postgres_url, tmp_path, 10, seconds=5, processes=2, burst=burst)
    assert broken(verdict) == []


@pytest.mark.long
def test_a_rate_holds_for_isolated_handlers(tmp_path: Path) -> None:
    verdict = run(
        f"sqlite:///{tmp_path}/jobs.db", tmp_path, 10, seconds=5, processes=2, kinds=("in_a_process",)
    )
    assert broken(verdict) == []


@pytest.mark.long
def test_a_rate_holds_in_memory(tmp_path: Path) -> None:
    verdict = run("memory://", tmp_path, 10, seconds=5, processes=2)
    assert broken(verdict) == []


def test_one_start_too_many_in_a_window_is_detected() -> None:
    even = [number / 2 for number in range(40)]
    assert judge(even, 2, None, 10).violations == []
    assert judge(sorted([*even, 7.1]), 2, None, 10).violations[0].startswith(EXACT)
    assert (most_within(even, 1.0), shortest_span(even, 3)) == (2, 1.0)


def test_an_unused_rate_is_detected() -> None:
    (violation,) = judge([float(number) for number in range(40)], 2, None, 10).violations
    assert violation.startswith("at least 95 %")


def test_a_bucket_that_refills_too_fast_is_detected() -> None:
    even = [0.0, 0.0, 0.0, *[number / 2 for number in range(1, 40)]]
    assert judge(even, 2, 3, 10).violations == []
    assert judge(sorted([*even, 0.6]), 2, 3, 10).violations[0].startswith(EXACT)
