"""A small run of the HTTP benchmark, with wrk and with the built-in loader."""

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
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [["--own"], []])
def test_a_small_run_has_no_errors_and_rejects_huge_bodies(
    how: list[str], fresh_postgres_url: str, tmp_path: Path
) -> None:
    if not how and shutil.which("wrk") is None:
        pytest.skip("wrk is not installed; the built-in loader is tested separately")
    file = tmp_path / "results.json"
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
    results = json.loads(file.read_text())
    for part in ("alone", "beside"):
        assert set(results[part]) == {"POST /api/jobs", "GET /api/jobs/{id}", "list of 50"}
        for row in results[part].values():
            assert row["errors"] == 0
            assert row["requests"] > 0
    assert results["streams"] == 20
    assert [cut["status"] for cut in results["cuts"]] == [413, 413]
