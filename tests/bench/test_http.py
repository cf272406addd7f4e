"""The benchmark of the HTTP API measures what it says, with wrk and without, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are read from /proc")
@pytest.mark.parametrize("how", [["--own"], []])
def test_a_small_run_is_answered_without_errors_and_cuts_what_is_too_large(
    how: list[str], fresh_postgres_url: str, tmp_path: Path
) -> None:
    if not how and shutil.which("wrk") is None:
        pytest.skip("wrk is not installed; the other loader is tried above")
    file = tmp_path / "found.json"
    words = ["--postgres", fresh_postgres_url, "--jobs", "200", "--seconds", "1", "--connections", "4"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.http", *words, "--streams", "20", "--json", str(file), *how],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    for part in ("alone", "beside"):
        assert set(found[part]) == {"POST /api/jobs", "GET /api/jobs/{id}", "list of 50"}
        for row in found[part].values():
            assert row["errors"] == 0
            assert row["requests"] > 0
    assert found["streams"] == 20
    assert [cut["status"] for cut in found["cuts"]] == [413, 413]
