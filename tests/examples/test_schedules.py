"""The examples of schedules run on every store, as a reader would run them, and say what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "schedules"

SAID = {
    "token_cleanup": ["night 1: ['b'] left", "night 2: [] left", "2026-06-02 00:00 UTC fired"],
    "tenant_reports": [
        "2026-02-02 13:00 UTC, version 1: acme: report in en for ann@acme.example",
        "2026-02-02 07:00 UTC, version 1: bolt: report in de for bo@bolt.example",
        "2026-03-02 07:00 UTC, version 2: bolt: report in de for new@bolt.example",
    ],
    "cache_on_every_node": ["03:00 UTC skipped: the node joined", "06:00 UTC fired", "2 files cleared"],
}


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example_runs_on_every_store(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    url = urls.get(kind) or request.getfixturevalue("fresh_postgres_url")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(FOLDER / f"{name}.py"), url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    for line in SAID[name]:
        assert line in done.stdout


def test_every_example_is_tried() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SAID)
