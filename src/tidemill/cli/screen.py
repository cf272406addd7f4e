"""Values as people read them: inert text, ages, tables that fit any width. JSON for programs. Decides nothing.

Names, messages and arguments come from anywhere. None of them may move a cursor, colour a screen or break a line: control
characters are shown as escapes, and nothing that was stored is ever read as markup.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# C0, DEL, C1, line and paragraph separators, marks that turn the direction of writing, and halves of characters.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

STYLES = {
    "scheduled": "cyan", "pending": "yellow", "claimed": "blue", "running": "bold blue", "waiting": "magenta",
    "review_needed": "bold magenta", "completed": "green", "failed": "red", "timed_out": "red", "cancelled": "dim",
    "dead_lettered": "bold red", "ok": "green", "warn": "yellow", "fail": "bold red", "alive": "green", "late": "yellow",
    "gone": "red", "draining": "yellow", "stopped": "dim", "paused": "yellow", "error": "red", "warning": "yellow",
}  # fmt: skip


def clean(value: object, *, lines: bool = False) -> str:
    r"""A text that does nothing to a screen; with ``lines`` its own line breaks stay.

    >>> print(clean("\x1b[31mred\nx"))
    \x1b[31mred\nx
    """
    text = str(value)
    if lines:
        return "\n".join(clean(line) for line in text.splitlines())
    return _UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def span(duration: timedelta | None) -> str:
    """A duration in two units at most.

    >>> span(timedelta(hours=26, minutes=5, seconds=1))
    '1d 2h'
    """
    if duration is None:
        return "-"
    seconds = abs(duration.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = int(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        amount, whole = divmod(whole, size)
        if amount or parts:
            parts.append((amount, unit))
    return " ".join(f"{amount}{unit}" for amount, unit in parts[:2] if amount)


def age(instant: datetime | None, now: datetime) -> str:
    """How long ago, or how far ahead.

    >>> age(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 5, tzinfo=UTC))
    '5m ago'
    """
    if instant is None:
        return "-"
    if abs(instant - now) < timedelta(milliseconds=1):
        return "now"
    return f"in {span(instant - now)}" if instant > now else f"{span(now - instant)} ago"


def stamp(instant: datetime | None) -> str:
    """An instant to the second, in UTC."""
    return "-" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def percent(fraction: float | None) -> str:
    """A fraction in hundredths, never outside them."""
    return "-" if fraction is None else f"{min(max(fraction, 0.0), 1.0):.0%}"


def thousands(number: int) -> str:
    """A number with its thousands set apart."""
    return f"{number:,}"


def console(*, err: bool = False) -> Console:
    """The screen as it is now: a terminal of some width, or a pipe."""
    return Console(
        file=sys.stderr if err else sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False
    )


def styled(value: object, style: str | None = None) -> Text:
    """Inert text; its own word decides its colour unless one is given."""
    text = clean(value)
    return Text(text, style if style is not None else STYLES.get(text, ""))


def print_json(document: Any) -> None:
    """One document: on a terminal to be read, otherwise on one line."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent, default=str))


def print_json_line(document: Any) -> None:
    """One line of a stream."""
    click.echo(json.dumps(document, default=str))
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and whether it may be cut short (``flexible``) or left out (``optional``) where there is no room."""

    name: str
    flexible: bool = False
    optional: bool = False
    right: bool = False


LEAST = 8
"""Cells a flexible column keeps."""


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, empty: str, fit: int | None = None
) -> RenderableType:
    """Rows under headings, as wide as ``fit``: optional columns go first, then rows become blocks. None: no limit."""
    cells = [[clean("-" if value is None else value) for value in row] for row in rows]
    if not cells:
        return Text(empty, "dim")
    if fit is None:
        return Text(_plain(columns, cells))
    chosen = list(range(len(columns)))
    while _needed(columns, cells, chosen) > fit:
        spare = [index for index in chosen if columns[index].optional]
        if not spare:
            return _blocks(columns, cells)
        chosen.remove(spare[-1])
    return _drawn(columns, cells, chosen)


def _needed(columns: Sequence[Column], cells: Sequence[Sequence[str]], chosen: Sequence[int]) -> int:
    total = 2 * (len(chosen) - 1)
    for index in chosen:
        width = max(cell_len(columns[index].name), *(cell_len(row[index]) for row in cells))
        total += min(width, LEAST) if columns[index].flexible else width
    return total


def _drawn(columns: Sequence[Column], cells: Sequence[Sequence[str]], chosen: Sequence[int]) -> Table:
    drawn = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index in chosen:
        column = columns[index]
        drawn.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if column.flexible else max(cell_len(row[index]) for row in cells),
        )
    for row in cells:
        drawn.add_row(*(styled(row[index]) for index in chosen))
    return drawn


def _blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> Text:
    """Each row as lines of its own, for a screen too narrow for columns."""
    text = Text(overflow="fold")
    for number, row in enumerate(cells):
        text.append("\n\n" if number else "")
        for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
            if index == 0:
                text.append(cell, "bold")
            elif cell != "-":
                text.append(f"\n  {column.name} ", "dim")
                text.append(cell, STYLES.get(cell, ""))
    return text


def _plain(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> str:
    """Aligned by spaces and never cut short: for files and other programs."""
    grid = [[column.name for column in columns], *cells]
    widths = [max(cell_len(row[index]) for row in grid) for index in range(len(columns))]
    lines = []
    for row in grid:
        padded = [
            " " * (width - cell_len(cell)) + cell if column.right else cell + " " * (width - cell_len(cell))
            for column, cell, width in zip(columns, row, widths, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table that fits the terminal, or whole lines where there is none."""
    screen = console()
    if screen.is_terminal:
        screen.print(table(columns, rows, empty=empty, fit=screen.width))
    else:
        click.echo(str(table(columns, rows, empty=empty)))


def put(text: Text) -> None:
    """A line: folded at a terminal's edge, whole where there is none."""
    screen = console()
    if screen.is_terminal:
        screen.print(text, overflow="fold")
    else:
        click.echo(text.plain)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; a value that is None is left out."""
    shown = [(name, clean(value, lines=True)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first, *more = value.split("\n")
        put(Text.assemble((f"{name:<{width}}  ", "dim"), Text(first, STYLES.get(first, ""))))
        for rest in more:
            put(Text(" " * (width + 2) + rest))


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Lines of inert text, each with its style."""
    for line, style in lines:
        put(Text(clean(line), style))


def heading(text: str) -> None:
    """What the next lines are about."""
    put(Text(f"\n{text}", "bold"))
