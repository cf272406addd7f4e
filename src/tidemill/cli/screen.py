"""Values as people read them: inert text, ages, tables that fit any width. JSON for programs. Decides nothing.

Names, messages and arguments come from anywhere. None of them may move a cursor, colour a screen or break a line: control
characters are shown as escapes, and nothing that was stored is ever read as markup.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# C0, DEL, C1, line and paragraph separators, marks that turn the direction of writing, and halves of characters.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}

# Of the 256 colours, those that can be read on a dark screen and on a light one: their contrast is at least three to one with both.
# A terminal of sixteen colours takes its own nearest.
_BLUE, _CYAN, _GREEN, _MAGENTA, _RED, _YELLOW = (
    "dodger_blue2", "turquoise4", "green4", "medium_orchid3", "red3", "dark_goldenrod",
)  # fmt: skip

STYLES = {
    "scheduled": _CYAN, "pending": _YELLOW, "claimed": _BLUE, "running": f"bold {_BLUE}", "waiting": _MAGENTA,
    "review_needed": f"bold {_MAGENTA}", "completed": _GREEN, "failed": _RED, "timed_out": _RED, "cancelled": "dim",
    "dead_lettered": f"bold {_RED}", "ok": _GREEN, "warn": _YELLOW, "fail": f"bold {_RED}", "alive": _GREEN, "late": _YELLOW,
    "gone": _RED, "draining": _YELLOW, "stopped": "dim", "paused": _YELLOW, "error": _RED, "warning": _YELLOW,
    "critical": f"bold {_RED}", "succeeded": _GREEN, "crashed": f"bold {_RED}", "released": "dim", "suspended": _MAGENTA,
    "review": f"bold {_MAGENTA}", "active": _GREEN, "revoked": "dim", "expired": "dim",
}  # fmt: skip

_JUDGED = frozenset({"status", "state", "alive", "liveness", "severity", "outcome"})
"""Columns and facts whose words are ours, and so may have a colour. A task that somebody calls ``failed`` has none."""


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


def size(count: int) -> str:
    """Bytes in the unit in which they are short.

    >>> size(900), size(2048), size(3 * 2**20 // 2)
    ('900 B', '2.0 KiB', '1.5 MiB')
    """
    number, units = float(count), iter(("KiB", "MiB", "GiB", "TiB"))
    unit = "B"
    while number >= 1024 and (larger := next(units, None)) is not None:
        number, unit = number / 1024, larger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def console(*, err: bool = False) -> Console:
    """The screen as it is now: a terminal of some width, or a pipe."""
    return Console(
        file=sys.stderr if err else sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False
    )


def can_draw_over(screen: Console) -> bool:
    """Whether what stands there can be drawn over: not in a pipe, nor on a terminal that takes no orders (``TERM=dumb``)."""
    return screen.is_terminal and not screen.is_dumb_terminal


def styled(value: object, style: str | None = None) -> Text:
    """Inert text; its own word decides its colour unless one is given."""
    text = clean(value)
    return Text(text, style if style is not None else STYLES.get(text, ""))


def _coloured(name: str, cell: str) -> str:
    return STYLES.get(cell, "") if name in _JUDGED else ""


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
    """A heading, and whether it may be cut short (``flexible``), go on in the next line (``folds``), or be left out (``optional``)
    where there is no room.
    """

    name: str
    flexible: bool = False
    optional: bool = False
    right: bool = False
    folds: bool = False

    def least(self, width: int, *, alone: bool) -> int:
        """Cells it keeps of so many; one that matters keeps more as long as others could go."""
        if not (self.flexible or self.folds):
            return width
        return min(width, LEAST if alone or self.optional else COMFORT)


LEAST, COMFORT = 8, 16
"""Cells a flexible column keeps, at worst and as long as there are columns that could be left out."""


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
    while (widths := _widths(columns, cells, chosen, fit)) is None:
        spare = [index for index in chosen if columns[index].optional]
        if not spare:
            return _blocks(columns, cells, fit)
        chosen.remove(spare[-1])
    return _drawn(columns, cells, widths)


_GAP = 2


def _widths(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], chosen: Sequence[int], fit: int
) -> dict[int, int] | None:
    """How wide each chosen column is; None where they do not fit. What is missing is taken from the widest of the flexible ones."""
    found = {
        index: max(cell_len(columns[index].name), *(cell_len(row[index]) for row in cells))
        for index in chosen
    }
    alone = not any(columns[index].optional for index in chosen)
    least = {index: columns[index].least(width, alone=alone) for index, width in found.items()}
    room = fit - _GAP * (len(chosen) - 1)
    if sum(least.values()) > room:
        return None
    while sum(found.values()) > room:
        widest = max(
            (index for index in least if found[index] > least[index]), key=lambda index: found[index]
        )
        found[widest] -= 1
    return found


def _drawn(columns: Sequence[Column], cells: Sequence[Sequence[str]], widths: Mapping[int, int]) -> Table:
    drawn = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for index, width in widths.items():
        justify: Literal["right", "left"] = "right" if columns[index].right else "left"
        folds = columns[index].folds
        overflow: Literal["fold", "ellipsis"] = "fold" if folds else "ellipsis"
        drawn.add_column(
            columns[index].name, justify=justify, no_wrap=not folds, overflow=overflow, width=width
        )
    for row in cells:
        drawn.add_row(*(Text(row[index], _coloured(columns[index].name, row[index])) for index in widths))
    return drawn


def _blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]], fit: int) -> Text:
    """Each row as lines of its own, for a screen too narrow for columns."""
    text = Text(overflow="fold")
    label = max(cell_len(column.name) for column in columns[1:]) if len(columns) > 1 else 0
    for number, row in enumerate(cells):
        text.append("\n\n" if number else "")
        for index, (column, cell) in enumerate(zip(columns, row, strict=True)):
            if index == 0:
                text.append(cell, "bold")
            elif cell not in ("-", ""):
                text.append(f"\n  {column.name}{' ' * (label - cell_len(column.name))}  ", "dim")
                indent, lines = _beside(cell, label + 4, 4, fit)
                text.append("" if indent == label + 4 else f"\n{' ' * indent}")
                text.append(lines[0], _coloured(column.name, cell))
                for line in lines[1:]:
                    text.append(f"\n{' ' * indent}{line}")
    return text


def _beside(text: str, indent: int, least: int, width: int) -> tuple[int, list[str]]:
    """A text in lines beside its name, or below it where a word of it (an id, to be copied) would be broken otherwise."""
    longest = max((cell_len(word) for word in text.split()), default=0)
    if longest > width - indent and longest <= width - least:
        indent = least
    return indent, _folded(text, width - indent)


def _folded(text: str, width: int) -> list[str]:
    """A text in lines of this width: broken between words, and within one only where it is longer than a line."""
    if width < LEAST:
        return [text]
    lines = Text(text).wrap(Console(width=width, file=io.StringIO()), width, overflow="fold")
    return [line.plain.rstrip() for line in lines] or [""]


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


def put(text: Text, hang: int = 0) -> None:
    """A line: folded at a terminal's edge, with what follows set in by ``hang``; whole where there is none."""
    screen = console()
    if screen.is_terminal and hang and cell_len(text.plain) > screen.width:
        for number, line in enumerate(text.wrap(screen, max(screen.width - hang, LEAST), overflow="fold")):
            line.rstrip()
            screen.print(Text.assemble(" " * hang, line) if number else line)
    elif screen.is_terminal:
        screen.print(text, overflow="fold")
    else:
        click.echo(text.plain)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; a value that is None is left out. On a terminal, long ones go on under their beginning."""
    shown = [(name, clean(value, lines=True)) for name, value in facts if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    screen = console()
    for name, value in shown:
        parts = [(width + 2, [line]) for line in value.split("\n")]
        if screen.is_terminal:
            parts = [_beside(line, width + 2, 2, screen.width) for line in value.split("\n")]
        lines = [(indent, line) for indent, folded in parts for line in folded]
        head = Text(f"{name:<{width}}  ", "dim")
        if lines[0][0] == width + 2:
            put(head + Text(lines.pop(0)[1], _coloured(name, value)))
        else:
            put(Text(name, "dim"))
        for indent, line in lines:
            put(Text(" " * indent + line, _coloured(name, value)))


def print_lines(lines: Iterable[tuple[str, str]], hang: int = 0) -> None:
    """Lines of inert text, each with its style."""
    for line, style in lines:
        put(Text(clean(line), style), hang)


def heading(text: str) -> None:
    """What the next lines are about."""
    put(Text(f"\n{text}", "bold"))
