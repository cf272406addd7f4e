"""Execution of every example."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.examples.running import STORES, said_by

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
@pytest.mark.parametrize("kind", STORES)
def test_an_example_runs_on_every_store(
    example: Path, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert said_by(example, kind, tmp_path, request).strip()
