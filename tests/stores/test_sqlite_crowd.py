"""Eight processes on one SQLite file: nobody sees an error, nothing is lost, nothing is claimed twice, nobody starves."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stores.sqlite_crowd import gather

PROCESSES = 8


@pytest.mark.long
def test_a_crowd_shares_one_file(tmp_path: Path) -> None:
    summary = gather(str(tmp_path / "crowd.db"), 10.0, PROCESSES)
    assert summary.errors == []
    assert (summary.lost, summary.twice, summary.left) == (0, 0, 0)
    assert summary.sound
    assert len(summary.shares) == PROCESSES
    assert min(summary.shares) > 0
