"""The threat model names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "threats.md"
_NAMED = re.compile(r"`(tests/[^`:]+)(?:::(\w+))?`")


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = _NAMED.findall(PAGE.read_text("utf-8"))
    assert len(named) > 40
    missing = [
        f"{path}::{name}"
        for path, name in named
        # A file alone does not say which of its tests shows the defence.
        if not name or not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text("utf-8")
    ]
    assert missing == []


def test_every_threat_has_a_test() -> None:
    rows = [
        line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|") and "---" not in line
    ]
    threats = [row for row in rows if row.count("|") == 4 and not row.startswith(("| threat", "| party"))]
    trusted = [row for row in threats if "`tests/" not in row]
    # The table of trusted parties has three columns, too.
    assert [row.split("|")[1].strip().split(" ")[0] for row in trusted] == [
        "the",
        "code",
        "code",
        "a",
        "someone",
    ]
