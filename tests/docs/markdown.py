"""Python blocks of Markdown pages."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Block(NamedTuple):
    """A Python block of a page: its first line, its code, and the reason for not running it."""

    page: str
    line: int
    code: str
    no_run: str | None


def blocks(page: str, text: str) -> Iterator[Block]:
    """The Python blocks of a Markdown page, including those inside lists and notes."""
    fence, start, language, before, no_run = "", 0, "", "", None
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        bare = line.strip()
        if not fence:
            opening = re.match(r"(`{3,}|~{3,})\s*\{?\.?(\w*)", bare)
            if opening:
                fence, start, language = opening[1], number, opening[2]
                excuse = re.fullmatch(r"<!--\s*no-run:\s*(.*?)\s*-->", before)
                no_run = excuse[1] if excuse else None
        elif bare.startswith(fence) and not bare.strip(fence[0]):
            if language in ("python", "py"):
                code = textwrap.dedent("\n".join(lines[start : number - 1]))
                yield Block(page, start + 1, code + "\n", no_run)
            fence = ""
        before = bare or before
    if fence:
        raise AssertionError(f"{page}:{start}: this block is never closed")


def pages() -> list[Path]:
    """The README, the pages for contributors and every page of the documentation."""
    return [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
