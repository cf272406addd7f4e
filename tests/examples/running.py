"""Helper that runs an example as a separate program on a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STORES = [
    "memory",
    pytest.param("sqlite", marks=pytest.mark.long),
    pytest.param("postgres", marks=pytest.mark.long),
]


def said_by(example: Path, kind: str, folder: Path, request: pytest.FixtureRequest, *words: str) -> str:
    """The output of the example on a store of this kind. Warnings are errors."""
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{folder}/jobs.db"}
    url = urls.get(kind) or request.getfixturevalue("fresh_postgres_url")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example), url, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
