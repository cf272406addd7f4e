"""Tests that run each schedule example on every store and check its output."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.running import STORES, said_by

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


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", sorted(SAID))
def test_an_example_runs_on_every_store(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    said = said_by(FOLDER / f"{name}.py", kind, tmp_path, request)
    for line in SAID[name]:
        assert line in said


def test_every_schedule_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SAID)
