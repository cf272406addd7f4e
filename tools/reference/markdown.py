"""Markdown elements of the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Z`])")


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def prose(text: str) -> str:
    """A docstring as paragraphs with one sentence per line."""
    paragraphs = [" ".join(part.split()) for part in text.replace("``", "`").split("\n\n")]
    return "\n\n".join(_SENTENCE.sub("\n", paragraph) for paragraph in paragraphs if paragraph)


def code(text: str) -> str:
    """Inline code."""
    return f"`{text}`"
