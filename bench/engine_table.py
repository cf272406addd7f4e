"""What was measured, for a reader: medians over the rounds, ratios of sides within a round, tables and the aims they meet.

Pure: it is given the figures and returns text and numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Rounds = Sequence[Mapping[str, float] | None]
"""One side's figures of each round; None where it failed."""

Workload = Mapping[str, Rounds]
Results = Mapping[str, Workload]

OURS, OURS_SQLITE, OURS_NARROW = "tidemill", "tidemill-sqlite", "tidemill -c 10"
STICK, STICK_SQLITE = "yardstick", "yardstick-sqlite"
NOISY = 0.2  # cores used by others above which a figure is marked


class Column(NamedTuple):
    """A heading, the figure under it, and how it is written."""

    title: str
    figure: str
    form: str = ",.0f"


RATE = Column("jobs/s", "rate")
DRAIN = (
    RATE,
    Column("CPU µs/job", "cpu_us", ".1f"),
    Column("with family", "cpu_us_all", ".1f"),
    Column("WAL B/job", "wal_bytes"),
    Column("tx/job", "transactions", ".3f"),
    Column("run again", "again"),
)
COLUMNS: dict[str, tuple[str, tuple[Column, ...]]] = {
    "w1": ("W1 enqueue one by one", (RATE,)),
    "w2": ("W2 enqueue 1,000 at a time", (RATE,)),
    "w3": ("W3 drain, one worker", DRAIN),
    "w4": ("W4 drain, two workers", (*DRAIN, Column("stagger s", "stagger_s", ".2f"))),
    "w5": (
        "W5 pick-up latency, ms from the enqueuer's return to the body's start",
        (
            *(Column(name, name, ".2f") for name in ("p50", "p95", "p99", "max")),
            Column("call p50", "call_p50", ".2f"),
            Column("missing", "missing"),
        ),
    ),
    "w6": (
        "W6 idle",
        (
            Column("CPU %", "cpu_percent", ".2f"),
            Column("tx/s", "transactions_s", ".2f"),
            Column("connections", "connections"),
            Column("RSS MB", "rss_mb"),
        ),
    ),
    "w7": (
        "W7 memory after the drain of W3, and start-up",
        (
            Column("RSS MB", "rss_mb"),
            Column("runner MB", "rss_runner_mb"),
            Column("first job s", "first_job_s", ".2f"),
            Column("stop s", "stop_s", ".2f"),
        ),
    ),
    "w8": ("W8 scale, to the last start", (RATE,)),
}


def values(workload: Workload, name: str, figure: str) -> list[float]:
    """A side's figure, of each round that has it."""
    return [round_[figure] for round_ in workload.get(name, ()) if round_ is not None and figure in round_]


def median(workload: Workload, name: str, figure: str) -> float | None:
    """The middle one of the rounds.

    >>> median({"a": [{"rate": 1.0}, None, {"rate": 3.0}]}, "a", "rate")
    2.0
    """
    found = values(workload, name, figure)
    return statistics.median(found) if found else None


def ratios(workload: Workload, name: str, other: str, figure: str = "rate") -> list[float]:
    """A side's figure divided by another's in the same round, of each round that has both.

    >>> ratios({"a": [{"rate": 2.0}, {"rate": 9.0}], "b": [{"rate": 1.0}, None]}, "a", "b")
    [2.0]
    """
    pairs = zip(workload.get(name, ()), workload.get(other, ()), strict=False)
    return [
        ours[figure] / theirs[figure]
        for ours, theirs in pairs
        if ours is not None and theirs is not None and figure in ours and theirs.get(figure)
    ]


def table(title: str, workload: Workload, columns: Sequence[Column]) -> str:
    """A workload's sides line by line; ``±`` is half the range of the first figure, ``!`` says that others were busy."""
    head = f"{'':<36}" + "".join(f"{column.title:>14}" for column in columns) + f"{'±':>8}{'others':>9}"
    lines = [title, head]
    for name in workload:
        cells = [median(workload, name, column.figure) for column in columns]
        if all(cell is None for cell in cells):
            lines.append(f"  {name:<34}{'failed' if workload[name] else '':>14}")
            continue
        written = "".join(
            f"{'–' if cell is None else format(cell, column.form):>14}"
            for cell, column in zip(cells, columns, strict=True)
        )
        spread, busy = _spread(values(workload, name, columns[0].figure)), median(workload, name, "others")
        marked = "–" if busy is None else f"{busy:.2f}{'!' if busy > NOISY else ' '}"
        lines.append(f"  {name:<34}{written}{spread:>8}{marked:>9}")
    return "\n".join(lines)


def _spread(found: Sequence[float]) -> str:
    middle = statistics.median(found) if found else 0.0
    return f"{(max(found) - min(found)) / 2 / abs(middle):.0%}" if len(found) > 1 and middle else ""


class Check(NamedTuple):
    """One line of the summary: what, its value in each round, and the aim where one is set (at most, if ``most``)."""

    what: str
    rounds: Sequence[float]
    form: str = ",.0f"
    aim: float | None = None
    most: bool = False

    @property
    def value(self) -> float:
        return statistics.median(self.rounds)

    @property
    def verdict(self) -> str:
        """Whether every round meets the aim, none does, or they do not agree: then nothing is shown either way."""
        if self.aim is None:
            return ""
        met = {value <= self.aim if self.most else value >= self.aim for value in self.rounds}
        return "open" if len(met) > 1 else "yes" if met == {True} else "NO"

    def line(self) -> str:
        low, value, high = (format(it, self.form) for it in (min(self.rounds), self.value, max(self.rounds)))
        between = f"{low} … {high}" if len(self.rounds) > 1 else ""
        aim = "" if self.aim is None else f"{'≤' if self.most else '≥'} {format(self.aim, self.form)}"
        return f"  {self.what:<58}{value:>10}{between:>20}{aim:>10}{self.verdict:>6}"

    def facts(self) -> dict[str, object]:
        """The same for programs."""
        return {**self._asdict(), "what": self.what.strip(), "value": self.value, "verdict": self.verdict}


def unquiet(results: Results) -> tuple[int, int]:
    """How many measurements others disturbed, and of how many; W7 is read from W3 and does not count again."""
    busy = [
        round_["others"] > NOISY
        for what, workload in results.items()
        if what != "w7"
        for rounds in workload.values()
        for round_ in rounds
        if round_ is not None and "others" in round_
    ]
    return sum(busy), len(busy)


def best(workload: Workload, names: Sequence[str], figure: str) -> str | None:
    """Who of these has the lowest figure."""
    found = {name: value for name in names if (value := median(workload, name, figure)) is not None}
    return min(found, key=lambda name: found[name]) if found else None


AIMS = {"pgqueuer": 2.5}
"""How many times a peer's rate is aimed at, where that is not once."""

LATENCY = {"p50": 2.5, "p99": 8.0}
"""Milliseconds from the enqueue call's return to the job's start."""


def checks(results: Results, postgres_peers: Sequence[str]) -> list[Check]:
    """What is asked of the engine, as far as it was measured."""
    one, two, wait = results.get("w3", {}), results.get("w4", {}), results.get("w5", {})
    idle, scale = results.get("w6", {}), results.get("w8", {})
    found = [
        Check("drain, 1 process: jobs/s", values(one, OURS, "rate")),
        Check("  / yardstick", ratios(one, OURS, STICK), ".2f", 0.6),
        *(
            Check(f"  / {peer}", ratios(one, OURS, peer), ".2f", AIMS.get(peer, 1.0))
            for peer in postgres_peers
            if peer in one
        ),
        Check("  CPU µs per job in the runner", values(one, OURS, "cpu_us"), ".1f", 20.0, most=True),
        Check("drain, 2 processes: jobs/s", values(two, OURS, "rate")),
        Check("  / yardstick with 2", ratios(two, OURS, STICK), ".2f", 0.6),
        *(
            Check(f"  / {peer} × 2", ratios(two, OURS, peer), ".2f", 1.0)
            for peer in postgres_peers
            if peer in two
        ),
        Check("drain, concurrency 10: jobs/s", values(one, OURS_NARROW, "rate"), ",.0f", 5_000),
        Check("  CPU µs per job in the runner", values(one, OURS_NARROW, "cpu_us"), ".1f"),
        Check("drain on SQLite: jobs/s", values(one, OURS_SQLITE, "rate")),
        Check("  / huey on SQLite", ratios(one, OURS_SQLITE, "huey-sqlite"), ".2f", 5.0),
        Check("  / yardstick on SQLite", ratios(one, OURS_SQLITE, STICK_SQLITE), ".2f"),
    ]
    for part in ("p50", "p99"):
        quickest = best(wait, postgres_peers, part)
        found.append(Check(f"latency {part}, ms", values(wait, OURS, part), ".2f", LATENCY[part], most=True))
        if quickest is not None:
            share = ratios(wait, OURS, quickest, part)
            found.append(
                Check(f"  / the quickest PostgreSQL peer ({quickest})", share, ".2f", 1.5, most=True)
            )
    quickest = best(wait, postgres_peers, "call_p50")
    found.append(Check("latency p50 from the call's begin, ms", values(wait, OURS, "call_p50"), ".2f"))
    if quickest is not None:
        share = ratios(wait, OURS, quickest, "call_p50")
        found.append(Check(f"  / the quickest PostgreSQL peer ({quickest})", share, ".2f"))
    found += [
        Check("idle: transactions/s", values(idle, OURS, "transactions_s"), ".2f", 2.0, most=True),
        Check("idle: CPU %", values(idle, OURS, "cpu_percent"), ".2f", 0.5, most=True),
        Check("idle on SQLite: CPU %", values(idle, OURS_SQLITE, "cpu_percent"), ".2f"),
        Check("1 process with finished jobs beside / empty", _beside(scale, "finished"), ".2f", 0.8),
        Check("1 process with pending jobs beside / empty", _beside(scale, "pending"), ".2f", 0.8),
    ]
    return [check for check in found if check.rounds]


def _beside(scale: Workload, what: str) -> list[float]:
    return ratios(scale, f"{OURS}, {what}", f"{OURS}, empty")
