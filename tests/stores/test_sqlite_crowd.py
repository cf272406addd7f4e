"""Eight processes on one SQLite file: nobody sees an error, nothing is lost, nothing is claimed twice, nobody starves."""

from __future__ import annotations

import os
from pathlib import Path

from tests.stores.sqlite_crowd import gather

PROCESSES = 8


def test_a_crowd_shares_one_file(tmp_path: Path) -> None:
    seconds = 10.0 if os.environ.get("TIDEMILL_TEST_ALL") == "1" else 4.0
    summary = gather(str(tmp_path / "crowd.db"), seconds, PROCESSES)
    assert summary.errors == []
    assert (summary.lost, summary.twice, summary.left) == (0, 0, 0)
    assert summary.sound
    assert len(summary.shares) == PROCESSES
    assert min(summary.shares) > 0
