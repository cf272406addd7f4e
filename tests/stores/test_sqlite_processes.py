"""Tests of several processes on one SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stores.sqlite_processes import stress

PROCESSES = 8


@pytest.mark.long
def test_eight_processes_share_one_file_without_errors_or_loss(tmp_path: Path) -> None:
    summary = stress(str(tmp_path / "stress.db"), 10.0, PROCESSES)
    assert summary.errors == []
    assert (summary.lost, summary.twice, summary.left) == (0, 0, 0)
    assert summary.sound
    assert len(summary.shares) == PROCESSES
    assert min(summary.shares) > 0
