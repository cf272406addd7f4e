"""The examples run, as a reader would run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_an_example_runs_on_every_store(
    example: Path, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    url = urls.get(kind) or request.getfixturevalue("fresh_postgres_url")
    done = subprocess.run(
        [sys.executable, str(example), url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
