"""Output of the CLI: safe text, durations, tables that fit any width, and JSON.

Names, messages and arguments are untrusted. They must not move the cursor, change colours or break lines. Control
characters are shown as escapes, and stored text is never interpreted as markup.
"""

from __future__ import annotations

import io
import json
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

from tidemill.domain import terminal_text

clean = terminal_text.clean

# These of the 256 colours are readable on dark and light backgrounds: their contrast is at least 3:1 with both. A
# terminal with sixteen colours uses the nearest of its own.
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
"""Columns and facts whose values are defined by Tidemill and may be coloured. A task named ``failed`` is not coloured.
"""


def span(duration: timedelta | None) -> str:
    """Format a duration in at most two units.

    >>> span(timedelta(hours=26, minutes=5, seconds=1)), span(timedelta(seconds=0.9996)), span(timedelta(seconds=0.25))
    ('1d 2h', '1s', '250ms')
    """
    if duration is None:
        return "-"
    seconds = abs(duration.total_seconds())
    if (milliseconds := round(seconds * 1000)) < 1000:
        return f"{milliseconds}ms"
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
    """Format an instant relative to now.

    >>> age(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 5, tzinfo=UTC))
    '5m ago'
    """
    if instant is None:
        return "-"
    if abs(instant - now) < timedelta(milliseconds=1):
        return "now"
    return f"in {span(instant - now)}" if instant > now else f"{span(now - instant)} ago"


def stamp(instant: datetime | None) -> str:
    """Format an instant in UTC, to the second."""
    return "-" if instant is None else instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def percent(fraction: float | None) -> str:
    """Format a fraction as a percentage between 0 and 100."""
    return "-" if fraction is None else f"{min(max(fraction, 0.0), 1.0):.0%}"


def thousands(number: int) -> str:
    """Format a number with thousands separators."""
    return f"{number:,}"


def size(count: int) -> str:
    """Format a number of bytes in a suitable unit.

    >>> size(900), size(2048), size(3 * 2**20 // 2)
    ('900 B', '2.0 KiB', '1.5 MiB')
    """
    number, units = float(count), iter(("KiB", "MiB", "GiB", "TiB"))
    unit = "B"
    while number >= 1024 and (larger := next(units, None)) is not None:
        number, unit = number / 1024, larger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def console(*, err: bool = False) -> Console:
    """Return a console for the current output, which may be a terminal or a pipe."""
    return Console(
        file=sys.stderr if err else sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=False
    )


def can_draw_over(screen: Console) -> bool:
    """Whether the output can be redrawn in place, unlike a pipe or a dumb terminal (``TERM=dumb``)."""
    return screen.is_terminal and not screen.is_dumb_terminal


def styled(value: object, style: str | None = None) -> Text:
    """Return escaped text, coloured by its value unless a style is given."""
    text = clean(value)
    return Text(text, style if style is not None else STYLES.get(text, ""))


def _coloured(name: str, cell: str) -> str:
    return STYLES.get(cell, "") if name in _JUDGED else ""


def print_json(document: Any) -> None:
    """Print one JSON document, indented on a terminal, otherwise on one line."""
    indent = 2 if sys.stdout.isatty() else None
    click.echo(json.dumps(document, indent=indent, default=str))


def print_json_line(document: Any) -> None:
    """Print one JSON line of a stream."""
    click.echo(json.dumps(document, default=str))
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and how the column adapts to a narrow screen.

    It may be truncated (``flexible``), wrap to the next line (``folds``), show only the end of its values (``tail``) or
    be omitted (``optional``). Optional columns without values are omitted first, then those with the highest ``rank``,
    then those furthest to the right.
    """

    name: str
    flexible: bool = False
    optional: bool = False
    right: bool = False
    folds: bool = False
    rank: int = 0
    keeps: int = 0  #: minimum width of a flexible column while other columns can still be omitted
    tail: int = 0  #: characters of a value that are shown if the whole value does not fit

    def least(self, width: int, *, alone: bool) -> int:
        """Return the minimum width. It is larger while other columns could still be omitted."""
        if not (self.flexible or self.folds):
            return width
        return min(width, LEAST if alone else self.keeps or (LEAST if self.optional else COMFORT))


LEAST, COMFORT = 8, 16
"""Minimum width of a flexible column: in any case, and while other columns could still be omitted."""


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    empty: str,
    fit: int | None = None,
    chosen_row: int | None = None,
) -> RenderableType:
    """Build a table of at most ``fit`` cells per line, or without a limit if None. ``chosen_row`` is highlighted.

    If it does not fit, ids are shortened first, then optional columns are omitted, then rows become blocks.
    """
    cells = [[clean("-" if value is None else value) for value in row] for row in rows]
    if not cells:
        return Text(empty, "dim")
    if fit is None:
        return Text(_plain(columns, cells))
    chosen = list(range(len(columns)))
    shown = cells if _natural(columns, cells) <= fit else _shortened(columns, cells)
    while (widths := _widths(columns, shown, chosen, fit)) is None:
        spare = [index for index in chosen if columns[index].optional]
        if not spare:
            return _blocks(columns, cells, fit)
        chosen.remove(max(spare, key=lambda index: (_is_blank(shown, index), columns[index].rank, index)))
    return _drawn(columns, shown, widths, chosen_row)


def _natural(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> int:
    """Return the width of the table without truncation."""
    widths = [
        max(cell_len(column.name), *(cell_len(row[index]) for row in cells))
        for index, column in enumerate(columns)
    ]
    return sum(widths) + _GAP * (len(columns) - 1)


def _shortened(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[list[str]]:
    return [
        [cell[-column.tail :] if column.tail else cell for column, cell in zip(columns, row, strict=True)]
        for row in cells
    ]


def _is_blank(cells: Sequence[Sequence[str]], index: int) -> bool:
    return all(row[index] in ("-", "") for row in cells)


_GAP = 2


def _widths(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], chosen: Sequence[int], fit: int
) -> dict[int, int] | None:
    """Return the width of each chosen column; None if they do not fit. The widest flexible columns shrink first."""
    widths = {
        index: max(cell_len(columns[index].name), *(cell_len(row[index]) for row in cells))
        for index in chosen
    }
    alone = not any(columns[index].optional for index in chosen)
    least = {index: columns[index].least(width, alone=alone) for index, width in widths.items()}
    room = fit - _GAP * (len(chosen) - 1)
    if sum(least.values()) > room:
        return None
    while sum(widths.values()) > room:
        widest = max(
            (index for index in least if widths[index] > least[index]), key=lambda index: widths[index]
        )
        widths[widest] -= 1
    return widths


def _drawn(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    widths: Mapping[int, int],
    chosen_row: int | None,
) -> Table:
    drawn = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for index, width in widths.items():
        justify: Literal["right", "left"] = "right" if columns[index].right else "left"
        folds = columns[index].folds
        overflow: Literal["fold", "ellipsis"] = "fold" if folds else "ellipsis"
        drawn.add_column(
            columns[index].name, justify=justify, no_wrap=not folds, overflow=overflow, width=width
        )
    for number, row in enumerate(cells):
        drawn.add_row(
            *(Text(row[index], _coloured(columns[index].name, row[index])) for index in widths),
            style="reverse" if number == chosen_row else None,
        )
    return drawn


def _blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]], fit: int) -> Text:
    """Render each row as several lines, for a screen too narrow for columns."""
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
    """Wrap a text next to its label, or below it if that avoids breaking a long word (such as an id to copy)."""
    longest = max((cell_len(word) for word in text.split()), default=0)
    if longest > width - indent and longest <= width - least:
        indent = least
    return indent, _folded(text, width - indent)


def _folded(text: str, width: int) -> list[str]:
    """Wrap a text to this width. Words longer than a line are broken."""
    if width < LEAST:
        return [text]
    lines = Text(text).wrap(Console(width=width, file=io.StringIO()), width, overflow="fold")
    return [line.plain.rstrip() for line in lines] or [""]


def _plain(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> str:
    """Align columns with spaces and never truncate, for files and other programs."""
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
    """Print a table that fits the terminal, or complete lines without a terminal."""
    screen = console()
    if screen.is_terminal:
        screen.print(table(columns, rows, empty=empty, fit=screen.width))
    else:
        click.echo(str(table(columns, rows, empty=empty)))


def put(text: Text, hang: int = 0) -> None:
    """Print a line. On a terminal it wraps, with a hanging indent of ``hang``."""
    screen = console()
    if screen.is_terminal and hang and cell_len(text.plain) > screen.width:
        for number, line in enumerate(text.wrap(screen, max(screen.width - hang, LEAST), overflow="fold")):
            line.rstrip()
            screen.print(Text.assemble(" " * hang, line) if number else line)
    elif screen.is_terminal:
        screen.print(text, overflow="fold")
    else:
        click.echo(text.plain)


def print_fields(rows: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one per line, without None values. On a terminal, long values wrap with an indent."""
    shown = [(name, clean(value, lines=True)) for name, value in rows if value is not None]
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
    """Print escaped lines, each with its style."""
    for line, style in lines:
        put(Text(clean(line), style), hang)


def heading(text: str) -> None:
    """Print a heading."""
    put(Text(f"\n{text}", "bold"))
