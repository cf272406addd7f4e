"""Tables and targets: medians over rounds, and ratios within a round.

Pure: computes text and numbers from the figures.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

Rounds = Sequence[Mapping[str, float] | None]
"""The figures of one side for each round; None for a failed round."""

Workload = Mapping[str, Rounds]
Results = Mapping[str, Workload]

OURS, OURS_SQLITE, OURS_NARROW = "tidemill", "tidemill-sqlite", "tidemill -c 10"
STICK, STICK_SQLITE = "yardstick", "yardstick-sqlite"
# A figure is marked if other processes used more cores than this.
NOISY = 0.2


class Column(NamedTuple):
    """A heading, the figure below it, and its format."""

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
WORK = (
    Column("share", "share", ".1%"),
    RATE,
    Column("ideal", "ideal_rate"),
    Column("jobs", "jobs"),
    Column("RSS MB", "rss_mb"),
    Column("run again", "again"),
)
COLUMNS: dict[str, tuple[str, tuple[Column, ...]]] = {
    "w1": ("W1 enqueue one by one", (RATE,)),
    "w2": ("W2 enqueue 1,000 at a time", (RATE,)),
    "w3": ("W3 drain, one worker", DRAIN),
    "w4": ("W4 drain, two workers", (*DRAIN, Column("stagger s", "stagger_s", ".2f"))),
    "w5": (
        "W5 pick-up latency, ms from the return of the enqueue call to the job's start",
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
    "w9": ("W9 loops in as many processes as cores, share of a bare loop", WORK),
    "w10": ("W10 threads that block for 5 ms, share of the ideal", WORK),
    "w13": (
        "W13 jobs that log ten lines and report progress, share of the same jobs without",
        (
            Column("share", "share", ".1%"),
            RATE,
            Column("plain jobs/s", "plain_rate"),
            Column("lines/s", "lines_s"),
            Column("with family", "cpu_us_all", ".1f"),
            Column("WAL B/job", "wal_bytes"),
            Column("run again", "again"),
        ),
    ),
    "w14": (
        "W14 pick-up latency of a busy worker, ms from the return of the enqueue call to the job's start",
        (
            *(Column(name, name, ".2f") for name in ("p50", "p95", "p99", "max")),
            Column("call p50", "call_p50", ".2f"),
            Column("busy", "busy", ".0%"),
            Column("missing", "missing"),
        ),
    ),
    "w11": ("W11 coroutines that wait for 1 s, share of the ideal", WORK),
}


def values(workload: Workload, name: str, figure: str) -> list[float]:
    """Return a side's figure for each round that has it."""
    return [round_[figure] for round_ in workload.get(name, ()) if round_ is not None and figure in round_]


def median(workload: Workload, name: str, figure: str) -> float | None:
    """Return the median over the rounds.

    >>> median({"a": [{"rate": 1.0}, None, {"rate": 3.0}]}, "a", "rate")
    2.0
    """
    figures = values(workload, name, figure)
    return statistics.median(figures) if figures else None


def ratios(workload: Workload, name: str, other: str, figure: str = "rate") -> list[float]:
    """Return a side's figure divided by that of another side in the same round, for each round with both.

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
    """Return one line for each side; ``±`` is half the range of the first figure, ``!`` marks load by other processes."""
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


def _spread(figures: Sequence[float]) -> str:
    middle = statistics.median(figures) if figures else 0.0
    return f"{(max(figures) - min(figures)) / 2 / abs(middle):.0%}" if len(figures) > 1 and middle else ""


class Check(NamedTuple):
    """One line of the summary: a name, the value of each round, and an optional target (an upper bound if ``most``)."""

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
        """Return "yes" if every round meets the target, "NO" if none does, "open" if they disagree."""
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
        """Return the same values, for programs."""
        return {**self._asdict(), "what": self.what.strip(), "value": self.value, "verdict": self.verdict}


def unquiet(results: Results) -> tuple[int, int]:
    """Return how many measurements other processes disturbed, and the total; W7 is read from W3 and not counted again."""
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
    """Return the side with the lowest figure."""
    medians = {name: value for name in names if (value := median(workload, name, figure)) is not None}
    return min(medians, key=lambda name: medians[name]) if medians else None


AIMS = {"pgqueuer": 2.5}
"""The target ratio to a peer's rate, if it is not 1."""

LATENCY = {"p50": 2.5, "p99": 8.0}
"""Target milliseconds from the return of the enqueue call to the job's start."""


def checks(results: Results, postgres_peers: Sequence[str]) -> list[Check]:
    """Return the requirements on the engine, as far as they were measured."""
    one, two, wait = results.get("w3", {}), results.get("w4", {}), results.get("w5", {})
    idle, scale = results.get("w6", {}), results.get("w8", {})
    requirements = [
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
        requirements.append(
            Check(f"latency {part}, ms", values(wait, OURS, part), ".2f", LATENCY[part], most=True)
        )
        if quickest is not None:
            share = ratios(wait, OURS, quickest, part)
            requirements.append(
                Check(f"  / the fastest PostgreSQL peer ({quickest})", share, ".2f", 1.5, most=True)
            )
    quickest = best(wait, postgres_peers, "call_p50")
    requirements.append(
        Check("latency p50 from the start of the call, ms", values(wait, OURS, "call_p50"), ".2f")
    )
    if quickest is not None:
        share = ratios(wait, OURS, quickest, "call_p50")
        requirements.append(Check(f"  / the fastest PostgreSQL peer ({quickest})", share, ".2f"))
    requirements += [
        Check("idle: transactions/s", values(idle, OURS, "transactions_s"), ".2f", 2.0, most=True),
        Check("idle: CPU %", values(idle, OURS, "cpu_percent"), ".2f", 0.5, most=True),
        Check("idle on SQLite: CPU %", values(idle, OURS_SQLITE, "cpu_percent"), ".2f"),
        Check("1 process with finished jobs in the store / empty", _beside(scale, "finished"), ".2f", 0.8),
        Check("1 process with pending jobs in the store / empty", _beside(scale, "pending"), ".2f", 0.8),
    ]
    return [check for check in requirements if check.rounds]


def _beside(scale: Workload, what: str) -> list[float]:
    return ratios(scale, f"{OURS}, {what}", f"{OURS}, empty")
