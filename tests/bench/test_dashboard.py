"""A small run of the dashboard benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.dashboard import NOT_MEASURED, PAGES

from tidemill.dashboard.site import all_pages

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_that_answers_get_is_measured_or_left_out_by_name() -> None:
    """So that a new page joins the benchmark."""
    found = {page.path for page in all_pages() if page.method == "GET"}
    measured = {path for path, _ in PAGES.values()}
    assert measured | NOT_MEASURED == found
    assert not measured & NOT_MEASURED


@pytest.mark.long
@pytest.mark.parametrize("store", ["postgres", "sqlite"])
def test_a_small_run_measures_every_page_twice(store: str, fresh_postgres_url: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    words = ["--store", store, "--jobs", "200", "--times", "2", "--backlog", "2000", "--processes", "1"]
    if store == "postgres":
        words += ["--postgres", fresh_postgres_url]
    done = subprocess.run(
        [sys.executable, "-m", "bench.dashboard", *words, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["alone"].keys() == results["beside"].keys()
    for part in ("alone", "beside"):
        for name, row in results[part].items():
            assert row["status"] == [200], name
            assert 0 < row["median"] <= row["p95"]
