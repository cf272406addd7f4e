"""Geometry of bar and line charts; the templates draw them as SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple


class ChartPart(NamedTuple):
    """One segment of a stacked bar."""

    name: str
    y: float
    height: float


class Bar(NamedTuple):
    """One bar: its segments from the bottom up, and the values for its tooltip."""

    x: float
    width: float
    parts: list[ChartPart]
    at: datetime
    values: dict[str, int]


class Mark(NamedTuple):
    """A labelled line of the scale, or a labelled instant on the time axis."""

    at: float
    label: str


class Hit(NamedTuple):
    """The hover area of one time step in a line chart, and the values for its tooltip."""

    x: float
    width: float
    at: datetime
    values: dict[str, float | None]


class Chart(NamedTuple):
    """Bars or lines in a box, with a scale."""

    width: float
    height: float
    scale: list[Mark]
    bars: list[Bar]
    lines: dict[str, str]
    empty: bool
    times: Sequence[datetime] = ()  #: labels of the time axis, evenly spaced from start to end
    hits: Sequence[Hit] = ()
    marks: Sequence[Mark] = ()  #: labelled instants


def stacked(
    steps: Sequence[tuple[datetime, dict[str, int]]],
    *,
    width: float = 720,
    height: float = 160,
    marks: Iterable[tuple[datetime, str]] = (),
) -> Chart:
    """Build a stacked bar chart with one bar per step.

    Segments follow the key order of each step; ``marks`` are labelled instants.
    """
    most = max((sum(values.values()) for _, values in steps), default=0)
    top = nice(most)
    step = width / max(len(steps), 1)
    bars = []
    for index, (at, values) in enumerate(steps):
        y, parts = height, []
        for name, value in values.items():
            tall = round(height * value / top, 2) if value else 0.0
            y -= tall
            if tall:
                parts.append(ChartPart(name, round(y, 2), tall))
        gap = min(1.5, step * 0.2)
        bars.append(Bar(round(index * step + gap / 2, 2), round(step - gap, 2), parts, at, values))
    ats = [at for at, _ in steps]
    return Chart(
        width,
        height,
        _scale(top, height),
        bars,
        {},
        most == 0,
        _times(ats),
        marks=_marks(ats, marks, width),
    )


def lines(
    series: dict[str, Sequence[float | None]],
    *,
    width: float = 720,
    height: float = 160,
    ats: Sequence[datetime] = (),
    marks: Iterable[tuple[datetime, str]] = (),
) -> Chart:
    """Build a line chart with one path per series. None leaves a gap; ``ats`` are the times of the values."""
    most = max((value for values in series.values() for value in values if value is not None), default=0.0)
    top = nice(most)
    paths = {name: _path(values, top, width, height) for name, values in series.items()}
    step = width / max(len(ats), 1)
    hits = [
        Hit(
            round(index * step, 2),
            round(step, 2),
            at,
            {name: values[index] for name, values in series.items()},
        )
        for index, at in enumerate(ats)
    ]
    return Chart(
        width,
        height,
        _scale(top, height),
        [],
        paths,
        most == 0,
        _times(ats),
        hits,
        _marks(ats, marks, width),
    )


class HeatCell(NamedTuple):
    """One cell of a heat map: the jobs of one step whose value is in one row."""

    x: float
    y: float
    jobs: int
    level: int  #: 1 to 5


class HeatMap(NamedTuple):
    """Jobs by time step and by row; rows are ordered from the bottom up."""

    width: float
    height: float
    cell: tuple[float, float]  #: width and height of a cell
    cells: list[tuple[datetime, str, HeatCell]]  #: with the step and the label of the row
    rows: list[Mark]
    times: Sequence[datetime]
    marks: Sequence[Mark]


LEVELS = 5


def heat(
    steps: Sequence[tuple[datetime, dict[int, int]]],
    label: Callable[[int], str],
    *,
    width: float = 720,
    height: float = 160,
    marks: Iterable[tuple[datetime, str]] = (),
) -> HeatMap | None:
    """Build a heat map from the jobs in each row of each step; None if there are no jobs."""
    numbers = {number for _, rows in steps for number, jobs in rows.items() if jobs}
    if not numbers:
        return None
    low, high = min(numbers), max(numbers)
    most = max(jobs for _, rows in steps for jobs in rows.values())
    wide, tall = width / len(steps), height / (high - low + 1)
    cells = [
        (
            at,
            label(number),
            HeatCell(
                round(place * wide, 2),
                round(height - (number - low + 1) * tall, 2),
                jobs,
                # A square root keeps a few slow jobs visible among many quick ones.
                max(1, min(LEVELS, round(LEVELS * (jobs / most) ** 0.5))),
            ),
        )
        for place, (at, rows) in enumerate(steps)
        for number, jobs in sorted(rows.items())
        if jobs
    ]
    rows = [Mark(round(height - (n - low + 1) * tall, 2), label(n)) for n in range(low, high + 1)]
    ats = [at for at, _ in steps]
    cell = round(max(wide - 1, 0.5), 2), round(max(tall - 1, 0.5), 2)
    return HeatMap(width, height, cell, cells, rows, _times(ats), _marks(ats, marks, width))


def spark(values: Sequence[float], *, width: float = 120, height: float = 24) -> str:
    """Return the path of a sparkline, without a scale.

    >>> spark([0, 2, 1], width=100, height=10)
    'M0 10L50 0L100 5'
    """
    return _path(list(values), max(values, default=0) or 1, width, height)


def _path(values: Sequence[float | None], top: float, width: float, height: float) -> str:
    step = width / max(len(values) - 1, 1)
    pieces, pen = [], "M"
    for index, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        pieces.append(f"{pen}{index * step:.4g} {height - height * value / top:.4g}")
        pen = "L"
    return "".join(pieces)


def nice(most: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten.

    >>> nice(0), nice(7), nice(43), nice(0.012)
    (1, 10, 50, 0.02)
    """
    if most <= 0:
        return 1
    size = 1.0
    while size < most:
        size *= 10
    while size / 10 >= most:
        size /= 10
    for part in (0.1, 0.2, 0.5, 1.0):
        if size * part >= most:
            rounded = size * part
            return int(rounded) if rounded >= 1 else round(rounded, 9)
    return size


def _end(ats: Sequence[datetime]) -> datetime:
    """Return the end of the last step."""
    return ats[-1] + (ats[-1] - ats[-2]) if len(ats) > 1 else ats[-1]


def _times(ats: Sequence[datetime], number: int = 5) -> list[datetime]:
    if len(ats) < 2:
        return []
    whole = _end(ats) - ats[0]
    return [ats[0] + whole * index / (number - 1) for index in range(number)]


def _marks(ats: Sequence[datetime], marks: Iterable[tuple[datetime, str]], width: float) -> list[Mark]:
    if len(ats) < 2:
        return []
    first, whole = ats[0], _end(ats) - ats[0]
    return [
        Mark(round(width * ((at - first) / whole), 2), label)
        for at, label in marks
        if first <= at <= first + whole
    ]


def _scale(top: float, height: float) -> list[Mark]:
    return [Mark(0.0, _label(top)), Mark(height / 2, _label(top / 2))]


def _label(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"
