"""One sentence per line in Markdown, so that a diff of prose shows the changed sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools.terminal import ROOT

GENERATED = {"docs/benchmarks.md", "docs/reference"}
"""Pages that other tools write."""

_ITEM = re.compile(r"^(\s*)([-*+]|\d+\.)(\s+)")
_END = re.compile(r"(?<=[.!?])(?P<close>[\"')\]*_]*)\s+(?=[\"'(\[*_]*[A-Z\d\x00…])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|vs|etc|approx|no|cf)|(?:^|\s)\d+)\.$", re.IGNORECASE)
_CODE = re.compile(r"`+[^`]*`+")


def pages() -> list[Path]:
    """The hand-written pages of the repository."""
    names = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md", "changes/README.md")
    found = [*(ROOT / name for name in names), *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not page.relative_to(ROOT).as_posix().startswith(tuple(GENERATED))]


def split(paragraph: str) -> list[str]:
    """The sentences of a paragraph. Code is opaque, and text in open parentheses stays together.

    >>> split("One, e.g. `a. B`. Two (see A. B). Three")
    ['One, e.g. `a. B`.', 'Two (see A. B).', 'Three']
    """
    codes = _CODE.findall(paragraph)
    plain = _CODE.sub("\0", paragraph)
    found, start = [], 0
    for match in _END.finditer(plain):
        sentence = plain[start : match.end("close")]
        is_open = sentence.count("(") > sentence.count(")") or sentence.count("[") > sentence.count("]")
        if not is_open and not _ABBREVIATION.search(sentence):
            found.append(sentence)
            start = match.end()
    found.append(plain[start:])
    restored = iter(codes)
    return [re.sub("\0", lambda _: next(restored), sentence.strip()) for sentence in found]


def reflow(text: str) -> str:
    """The page with one sentence per line; code, tables, headings and comments stay as they are."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    held: list[str] = []
    lead = indent = ""
    fence = ""
    for line in lines:
        bare = line.strip()
        item = None if fence else _ITEM.match(line)
        opening = re.match(r"(`{3,}|~{3,})", bare)
        if fence or opening or _is_fixed(line, bare, open_paragraph=bool(held)):
            yield from _flush(held, lead, indent)
            held, lead, indent = [], "", ""
            yield line
            if fence:
                fence = "" if bare.startswith(fence) and not bare.strip(fence[0]) else fence
            elif opening:
                fence = opening[1]
        elif item:
            yield from _flush(held, lead, indent)
            lead, indent = item[0], " " * len(item[0])
            held = [line[len(lead) :]]
        else:
            if not held:
                lead = indent = line[: len(line) - len(line.lstrip())]
            held.append(bare)
    yield from _flush(held, lead, indent)


def _is_fixed(line: str, bare: str, *, open_paragraph: bool) -> bool:
    """Whether a line is not prose: blank, a heading, a table row, a comment or HTML, or indented code."""
    return (
        not bare or bare.startswith(("#", "|", "<", "![")) or (line.startswith("    ") and not open_paragraph)
    )


def _flush(held: list[str], lead: str, indent: str) -> Iterator[str]:
    if held:
        first, *rest = split(" ".join(held))
        yield lead + first
        yield from (indent + sentence for sentence in rest)


def fix() -> list[Path]:
    """Rewrite the pages that differ and return them."""
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if reflow(text) != text:
            page.write_text(reflow(text), encoding="utf-8")
            changed.append(page)
    return changed
