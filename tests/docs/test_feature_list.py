"""The feature list is complete, and names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "features.md"
ITEMS = 240

ROWS = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| M-")]


def test_every_item_has_a_row() -> None:
    assert [row.split("|")[1].strip() for row in ROWS] == [f"M-{number:03}" for number in range(1, ITEMS + 1)]


def test_every_row_names_a_test_that_exists_or_says_what_is_missing() -> None:
    wrong = []
    for row in ROWS:
        named = re.findall(r"`(tests/[^`:]+)::(\w+)`", row)
        if not named and "**not yet**" not in row and "decisions/" not in row:
            wrong.append(row)
        for path, name in named:
            file = ROOT / path
            if not file.is_file() or f"def {name}(" not in file.read_text("utf-8"):
                wrong.append(row)
    assert wrong == []


def test_the_counts_above_the_table_are_those_of_its_rows() -> None:
    missing = sum("**not yet**" in row for row in ROWS)
    assert f"{ITEMS - missing} of {ITEMS}" in PAGE.read_text("utf-8")
