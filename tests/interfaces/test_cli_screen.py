"""Tables and key-value lists on a terminal: widths, wrapping and colours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text

from tidemill.cli import screen
from tidemill.cli.screen import STYLES, Column, print_fields, print_lines, size, table

JOBS = (
    Column("id"), Column("status"), Column("task", flexible=True), Column("queue", flexible=True),
    Column("age", right=True), Column("progress", optional=True, right=True), Column("reason", flexible=True, optional=True),
)  # fmt: skip
ID = "01a1e3bb-51e9-7000-84d9-74aa3e5f606c"
ROWS: list[list[object]] = [
    [
        ID,
        "failed",
        "reports.monthly.generate_all_statements",
        "media",
        "1m 48s",
        "40%",
        "it was not found " * 5,
    ],
    [ID, "completed", "failed", "mail", "2s", "100%", None],
]


def drawn(what: RenderableType, width: int, *, colour: bool = False) -> str:
    """The output on a terminal of this width."""
    into = io.StringIO()
    console = Console(
        file=into,
        width=width,
        force_terminal=colour,
        color_system="256" if colour else None,
        markup=False,
        highlight=False,
    )
    console.print(what)
    return into.getvalue()


def shown(width: int, columns: tuple[Column, ...] = JOBS, rows: list[list[object]] = ROWS) -> list[str]:
    return drawn(table(columns, rows, empty="none", fit=width), width).splitlines()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], io.StringIO]:
    """Capture everything printed from now on, as on a terminal of this width."""

    def begin(width: int) -> io.StringIO:
        into = io.StringIO()
        made = Console(
            file=into, width=width, force_terminal=True, color_system=None, markup=False, highlight=False
        )
        monkeypatch.setattr(screen, "console", lambda: made)
        return into

    return begin


def test_the_main_columns_fit_eighty_columns() -> None:
    head, first, second = shown(80)
    assert head.split() == ["id", "status", "task", "queue", "age"]
    assert first.split()[:2] == [ID, "failed"]
    assert first.split()[-2:] == ["1m", "48s"]
    assert "…" in first  # the task is truncated with an ellipsis
    assert second.split() == [ID, "completed", "failed", "mail", "2s"]


def test_optional_columns_are_dropped_before_others_are_truncated() -> None:
    columns = (
        Column("key", flexible=True),
        Column("when", flexible=True),
        Column("zone", optional=True),
        Column("scope", optional=True),
    )
    rows: list[list[object]] = [
        ["statements-for-every-customer", "At 02:00 every day", "Europe/Berlin", "cluster"]
    ]
    for width, names in (
        (80, ["key", "when", "zone", "scope"]),
        (55, ["key", "when", "zone"]),
        (40, ["key", "when"]),
    ):
        head, line = shown(width, columns, rows)
        assert head.split() == names
        assert line.startswith("statements-for-")
    assert shown(19, columns, rows)[0].split() == ["key", "when"]


def test_a_heading_is_never_truncated() -> None:
    assert shown(40, (Column("number", right=True), Column("what", flexible=True)), [[1, "x" * 200]])[
        0
    ].split() == [
        "number",
        "what",
    ]


def test_a_folding_column_shows_its_whole_text() -> None:
    words = "paused by ann: the encoder is being replaced, see the ticket"
    lines = shown(40, (Column("queue"), Column("paused", folds=True)), [["media", words]])
    assert " ".join(line[7:].strip() for line in lines[1:]) == words
    assert len(lines) > 2


def test_rows_too_wide_for_a_table_become_blocks() -> None:
    columns = (Column("id"), Column("name"), Column("last claim at"))
    lines = shown(38, columns, [[ID, "w1", "2m ago"]])
    assert lines == [ID, "  name           w1", "  last claim at  2m ago"]


@given(
    st.lists(
        st.lists(st.text("abcdefghij -…漢", max_size=60), min_size=4, max_size=4), min_size=1, max_size=4
    ),
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=4, max_size=4),
    st.integers(30, 160),
)
def test_no_line_is_wider_than_the_screen(
    cells: list[list[str]], kinds: list[tuple[bool, bool, bool]], width: int
) -> None:
    columns = tuple(
        Column(f"column {number}", flexible=flexible, optional=optional, folds=folds)
        for number, (flexible, optional, folds) in enumerate(kinds)
    )
    lines = drawn(table(columns, cells, empty="none", fit=width), width).splitlines()
    assert max(cell_len(line) for line in lines) <= width


def test_only_status_columns_are_coloured() -> None:
    text = drawn(table(JOBS, ROWS, empty="none", fit=140), 140, colour=True)
    coloured = re.findall(r"\x1b\[[0-9;]*38;5;\d+m([^\x1b]*)", text)
    assert [word.strip() for word in coloured] == ["failed", "completed"]


def _contrast(style: str, ground: float) -> float:
    """The WCAG contrast ratio against black (0) or white (1)."""
    colour = Style.parse(style).color
    assert isinstance(colour, Color)
    parts = [part / 255 for part in colour.get_truecolor()]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    above, below = max(light, ground), min(light, ground)
    return (above + 0.05) / (below + 0.05)


@pytest.mark.parametrize("word", [word for word, style in STYLES.items() if style != "dim"])
def test_every_colour_is_readable_on_dark_and_on_light(word: str) -> None:
    assert min(_contrast(STYLES[word], ground) for ground in (0.0, 1.0)) >= 3


def test_a_long_value_continues_below_its_start(said: Callable[[int], io.StringIO]) -> None:
    into = said(40)
    print_fields(
        [("task", "send"), ("reason", "the customer was not found in the register"), ("x", "a\n  b")]
    )
    assert into.getvalue().splitlines() == [
        "task    send",
        "reason  the customer was not found in",
        "        the register",
        "x       a",
        "          b",
    ]


def test_an_id_is_not_wrapped_where_a_line_can_hold_it(said: Callable[[int], io.StringIO]) -> None:
    into = said(40)
    print_fields([("correlation id", ID), ("task", "send")])
    assert into.getvalue().splitlines() == ["correlation id", f"  {ID}", "task            send"]
    columns = (Column("name"), Column("worker"), Column("reason"), Column("last claim at"))
    lines = shown(40, columns, [["w1", ID, "none", "2m ago"]])
    assert lines == [
        "w1",
        "  worker         ",
        f"    {ID}",
        "  reason         none",
        "  last claim at  2m ago",
    ]


def test_continuation_lines_are_indented(said: Callable[[int], io.StringIO]) -> None:
    into = said(30)
    print_lines([("- it has ended: the customer was not found", "")], hang=2)
    lines = into.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("  ")
    assert " ".join(line.strip() for line in lines) == "- it has ended: the customer was not found"


def test_a_narrow_screen_loses_no_text(said: Callable[[int], io.StringIO]) -> None:
    into = said(12)
    print_fields([("correlation id", "0123456789abcdef")])
    assert "0123456789abcdef" in into.getvalue().replace("\n", "").replace(" ", "")


def test_sizes_have_a_unit() -> None:
    assert [size(0), size(1023), size(1024), size(5 * 2**30), size(2**60)] == [
        "0 B", "1023 B", "1.0 KiB", "5.0 GiB", "1048576.0 TiB",
    ]  # fmt: skip


def test_markup_in_a_text_is_printed_literally() -> None:
    assert drawn(Text("[red]x[/red]"), 40) == "[red]x[/red]\n"


# Priorities of columns
# --------------------------------------------------------------------------------------------------------


def heads(width: int, rows: list[list[object]]) -> list[str]:
    columns = (
        Column("id", tail=4), Column("task", flexible=True), Column("queue", optional=True, rank=2),
        Column("age", optional=True, rank=1), Column("progress", optional=True), Column("reason", flexible=True, optional=True, keeps=12, rank=-1),
    )  # fmt: skip
    return shown(width, columns, rows)


ROW: list[object] = ["0123456789abcdef", "send", "default", "2s", "40%", "the mail server is down"]


def test_ids_are_shortened_before_a_column_is_dropped() -> None:
    assert "0123456789abcdef" in heads(80, [ROW])[1]
    head, row = heads(60, [ROW])
    assert head.split() == ["id", "task", "queue", "age", "progress", "reason"]
    assert row.split()[0] == "cdef"


def test_empty_columns_are_dropped_first_and_then_those_of_the_highest_rank() -> None:
    assert "progress" not in heads(44, [[*ROW[:4], None, ROW[5]]])[0]
    assert "queue" in heads(44, [[*ROW[:4], None, ROW[5]]])[0]
    assert heads(40, [ROW])[0].split() == ["id", "task", "age", "progress", "reason"]
    assert heads(36, [ROW])[0].split() == ["id", "task", "progress", "reason"]


def test_a_column_keeps_its_width_while_others_can_be_dropped() -> None:
    assert "the mail se" in heads(36, [ROW])[1]
