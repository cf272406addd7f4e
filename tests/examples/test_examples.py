"""Tests that run each example on every store and check its output."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.running import STORES, said_by

EXAMPLES = {path.stem: path for path in (Path(__file__).parents[2] / "examples").glob("*.py")}

SAID = {
    "agent": [
        "Approval for support: Allow refund with {'order': 42, 'amount': 99}?",
        "Done: 99 EUR of order 42 refunded",
        "crashes, steps: ask/Approval, find_order[0], refund-1, think[0], think[1], think[2]",
    ],
    "nightly_import": [
        "After import completed",
        "rows, sum",
        "figures are published",
    ],
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_runs_on_every_store(
    name: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # The databases get fewer rows: the runner of tests runs one job at a time.
    rows = ["10000" if kind == "memory" else "400"] if name == "nightly_import" else []
    said = said_by(EXAMPLES[name], kind, tmp_path, request, *rows)
    assert said.strip()
    for line in SAID.get(name, []):
        assert line in said
    if rows == ["10000"]:
        assert "9,999 of 10,000 rows, sum 49,994,987" in said
