"""Comparison of one schedule in one zone over years with the oracle.

A schedule with up to ``LISTED`` fires is listed in full. Of a denser one, every fire around clock changes and at the ends is
listed, and the fires of every month are counted. Around changes the fires are also listed backwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.domain.schedules.cases import EPOCH, Case
from tests.domain.schedules.clocks import DAY, WallClock

LISTED = 100_000
_MICROSECOND = timedelta(microseconds=1)
_DENSE_A_DAY = 600
_FEW = 4


@dataclass
class OutcomeCounts:
    """The number of comparisons, and the differences."""

    schedules: int = 0
    listed: int = 0
    counted: int = 0
    doubled: int = 0
    skipped: int = 0
    extra: int = 0
    miscounted: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, other: OutcomeCounts) -> None:
        for name in ("schedules", "listed", "counted", "doubled", "skipped", "extra", "miscounted"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.differences += other.differences[: max(20 - len(self.differences), 0)]

    @property
    def wrong(self) -> int:
        return self.doubled + self.skipped + self.extra + self.miscounted

    def note(self, case: Case, clock: WallClock, what: str, instants: Iterable[int]) -> None:
        for at in sorted(instants)[:3]:
            when = EPOCH + at * _MICROSECOND
            shown = when.astimezone(clock.zone).isoformat()
            self.differences.append(f"{clock.name}, {case.label}: {what} {when.isoformat()} ({shown})")


def compare(case: Case, clock: WallClock) -> OutcomeCounts:
    """Compare one schedule in one zone."""
    counts = OutcomeCounts(schedules=1)
    expected = case.rule.count(clock, clock.start, clock.end)
    _count(counts, case, clock, clock.start, clock.end, expected)
    if expected <= LISTED:
        _list(counts, case, clock, clock.start, clock.end)
    else:
        for start, end in _months(clock):
            _count(counts, case, clock, start, end, case.rule.count(clock, start, end))
        for start, end in _windows(case, clock):
            _list(counts, case, clock, start, end)
    for start, end in _windows(case, clock):
        _list(counts, case, clock, start, end, backwards=True)
    return counts


def _list(
    counts: OutcomeCounts, case: Case, clock: WallClock, start: int, end: int, *, backwards: bool = False
) -> None:
    expected = case.rule.fires(clock, start, end)
    fires = case.trigger.between(
        _instant(start),
        _instant(end),
        clock.zone,
        case.calendar,
        case.exclude,
        newest=len(expected) + 5 if backwards else None,
        limit=None if backwards else len(expected) + 5,
    )
    listed = [(fire - EPOCH) // _MICROSECOND for fire in fires]
    counts.listed += len(expected)
    once = set(listed)
    if listed == sorted(expected):
        return
    way = "backwards, " if backwards else ""
    twice = {at for at in once if listed.count(at) > 1} if len(once) < len(listed) else set()
    for what, several in (("doubled", twice), ("skipped", expected - once), ("extra", once - expected)):
        setattr(counts, what, getattr(counts, what) + len(several))
        counts.note(case, clock, way + what, several)
    if listed != sorted(listed):
        counts.extra += 1
        counts.differences.append(f"{clock.name}, {case.label}: {way}out of order")


def _count(counts: OutcomeCounts, case: Case, clock: WallClock, start: int, end: int, expected: int) -> None:
    counted = case.trigger.count_between(
        _instant(start), _instant(end), clock.zone, case.calendar, case.exclude
    )
    counts.counted += expected
    if counted != expected:
        counts.miscounted += abs(counted - expected)
        counts.differences.append(
            f"{clock.name}, {case.label}: {counted} fires from {_instant(start)} to {_instant(end)}, not {expected}"
        )


def _windows(case: Case, clock: WallClock) -> Iterator[tuple[int, int]]:
    """Yield windows around every clock change and at both ends; fewer and shorter ones for dense schedules."""
    dense = case.rule.a_day > _DENSE_A_DAY
    reach = 4 * 3600 if dense else 3 * DAY
    changes = [at for at, _, _ in clock.changes if clock.start + reach <= at < clock.end - reach]
    if dense and len(changes) > _FEW:
        changes = changes[:: -(-len(changes) // _FEW)]
    ends = (clock.start + reach, clock.end - reach)
    if case.rule.a_day > _DENSE_A_DAY * 10:
        reach //= 2
    for at in (*changes, *ends):
        yield at - reach, at + reach


def _months(clock: WallClock) -> Iterator[tuple[int, int]]:
    first, last = _instant(clock.start), _instant(clock.end)
    edges = [
        int(datetime(year, month, 1, tzinfo=UTC).timestamp())
        for year in range(first.year, last.year)
        for month in range(1, 13)
    ]
    yield from zip(edges, [*edges[1:], clock.end], strict=True)


def _instant(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)
