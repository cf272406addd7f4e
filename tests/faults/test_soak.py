"""Judging a soak, and a soak of seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults.soak import judge, run
from tests.faults.soak_samples import Sample

MEGABYTE = 1e6


def samples(name: str, *values: float) -> list[Sample]:
    return [{name: value} for value in values]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "memory of worker",
            [100 * MEGABYTE, 150 * MEGABYTE, 151 * MEGABYTE, 152 * MEGABYTE] + [152 * MEGABYTE] * 5,
        ),
        ("descriptors of server", [10, 20, 20, 21, 20, 21, 22, 21, 20]),
        ("rows in history", [100, 5_000, 9_000, 9_500, 9_400, 9_600, 9_500, 9_600, 9_400]),
        ("rows in audit", [1, 2, 3, 1_000, 2_000, 3_000, 8_000, 9_000, 10_000]),
    ],
)
def test_a_resource_that_grows_only_at_first_levels_off(name: str, values: list[float]) -> None:
    (finding,) = judge(samples(name, *values))
    assert finding.levels_off


@pytest.mark.parametrize(
    ("name", "step"),
    [("memory of worker", 10 * MEGABYTE), ("descriptors of worker", 5), ("threads of worker", 2), ("connections", 2),
     ("rows in history", 500), ("tables size", 5 * MEGABYTE), ("wal size", 50 * MEGABYTE), ("file size", 5 * MEGABYTE)],
)  # fmt: skip
def test_a_resource_that_grows_all_the_time_is_found(name: str, step: float) -> None:
    (finding,) = judge(samples(name, *(step * minute for minute in range(1, 10))))
    assert not finding.levels_off
    assert finding.highest == 9 * step


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_soak_of_seconds_samples_every_resource(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if store == "postgres":
        url = str(request.getfixturevalue("fresh_postgres_url"))
    outcome = run(url, tmp_path, 3, 10, 1, seconds=2.0)
    findings = outcome["findings"]
    assert isinstance(findings, list)
    names = {finding.name for finding in findings}
    assert {
        "memory of worker",
        "descriptors of server",
        "threads of client",
        "rows in history",
        "wal size",
    } <= names
    assert outcome["refused"] == 0
