"""Freshness of the API reference.

With ``TIDEMILL_REWRITE=1`` the test regenerates a stale page instead of failing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.docs.reference_page import page, undocumented

import tidemill

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference.md"
REWRITE = "TIDEMILL_REWRITE=1 python3 dev.py test tests/docs/test_reference_page.py"


def test_the_page_is_up_to_date() -> None:
    if os.environ.get("TIDEMILL_REWRITE") == "1":
        PAGE.write_text(page(), encoding="utf-8")
    if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != page():
        pytest.fail(f"{PAGE.relative_to(ROOT)} is stale; rewrite it with\n    {REWRITE}", pytrace=False)


def test_every_public_name_has_a_heading() -> None:
    headings = re.findall(r"^### (\w+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(headings) == sorted(tidemill.__all__)


def test_every_option_and_setting_is_documented() -> None:
    assert undocumented() == []


@pytest.mark.parametrize(
    "text",
    [
        "on_conflict:", "Rate(", "key:", "Exponential(", "initial:", "factor:", "jitter:", "`retry=3`", "| `args_limit` |",
        "Context.progress(", "Context.track(", "Job.run_now(", "| `BadArguments` |", "Job.result(",
    ],
)  # fmt: skip
def test_the_page_contains_frequently_used_names(text: str) -> None:
    assert text in PAGE.read_text(encoding="utf-8")


def test_the_page_contains_no_memory_addresses() -> None:
    assert not re.search(r"0x[0-9a-f]{6,}|<function|<class", PAGE.read_text(encoding="utf-8"))
