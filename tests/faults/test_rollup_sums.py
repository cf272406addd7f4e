"""The small form of the rollup run: sums equal the history table after kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.faults import rollup_sums


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rollups_equal_the_history_after_kills(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if kind == "postgres":
        url = request.getfixturevalue("migrated_postgres_url")
    verdict = rollup_sums.run(url, tmp_path, 3_000, 1, kills=2)
    assert verdict.violations == []
    assert verdict.facts["kills"]
