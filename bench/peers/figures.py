"""What the page says in numbers: each workload's systems in order, with medians, spreads and ratios to the best peer and the yardstick.

Pure: it is given what ``results.json`` holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bench.engine_table import (
    OURS,
    OURS_NARROW,
    OURS_SQLITE,
    STICK,
    STICK_SQLITE,
    Column,
    Workload,
    median,
    ratios,
    values,
)

Results = Mapping[str, Any]


class Subject(NamedTuple):
    """A workload on the page: its main figure first, then what stands beside it."""

    title: str
    about: str
    main: Column
    beside: tuple[Column, ...] = ()
    less: bool = False  #: less is better
    ratio: bool = True  #: whether a ratio to others means something

    @property
    def unit(self) -> str:
        return f"{self.main.title}; {'less' if self.less else 'more'} is better"


_RATE = Column("jobs/s", "rate")
_DRAIN = (
    Column("jobs drained", "jobs"),
    Column("worker CPU µs/job", "cpu_us_all", ".0f"),
    Column("WAL bytes/job", "wal_bytes"),
    Column("transactions/job", "transactions", ".2f"),
)
SUBJECTS = {
    "w1": Subject(
        "W1: enqueue one by one", "One program enqueues, each call waiting for the one before.", _RATE
    ),
    "w2": Subject(
        "W2: enqueue in bulk",
        "One program enqueues 1,000 jobs a call, where the system has such a call.",
        _RATE,
    ),
    "w3": Subject(
        "W3: drain, one worker",
        "The store holds the jobs, one worker process starts; from the first job's start to the moment when the store shows none left.",
        _RATE,
        _DRAIN,
    ),
    "w4": Subject("W4: drain, two workers", "The same with two worker processes.", _RATE, _DRAIN),
    "w5": Subject(
        "W5: latency",
        "A job every 50 ms to an idle, warm worker; milliseconds from the beginning of the enqueue call to the start of the job's body. "
        "The last three columns count from the call's return, and may be below zero: a job can start before its enqueuer goes on.",
        Column("p50, ms", "call_p50", ".2f"),
        (
            Column("p99, ms", "call_p99", ".2f"),
            Column("p50 from the return", "p50", ".2f"),
            Column("p95", "p95", ".2f"),
            Column("p99", "p99", ".2f"),
        ),
        less=True,
    ),
    "w6": Subject(
        "W6: an idle worker",
        "A worker with nothing to do. Processor time is read in ticks of 10 ms, so the smallest figures are one and the same.",
        Column("CPU %", "cpu_percent", ".2f"),
        (
            Column("transactions/s", "transactions_s", ".2f"),
            Column("connections", "connections"),
            Column("RSS MB", "rss_mb"),
        ),
        less=True,
        ratio=False,
    ),
    "w7": Subject(
        "W7: memory and start-up",
        "Resident memory of all processes of a worker after W3, and the time from its start to the first job's.",
        Column("RSS MB", "rss_mb"),
        (Column("start to first job, s", "first_job_s", ".2f"),),
        less=True,
    ),
    "w8": Subject(
        "W8: with a past and a backlog",
        "W3 to the start of the last job, on PostgreSQL: with nothing, finished jobs, or pending jobs beside.",
        _RATE,
    ),
}
BESIDE = ("empty", "finished", "pending")
OWN = (OURS, OURS_SQLITE, OURS_NARROW)
STICKS = (STICK, STICK_SQLITE)


class Row(NamedTuple):
    """One system in one workload."""

    name: str
    value: float
    low: float
    high: float
    cells: tuple[float | None, ...]
    to_peer: float | None
    to_stick: float | None

    @property
    def spread(self) -> float | None:
        """Half the range, as a part of the middle."""
        return (self.high - self.low) / 2 / abs(self.value) if self.high > self.low and self.value else None


def peers_in(workload: Workload) -> list[str]:
    """Who is neither ours nor a yardstick."""
    return [name for name in workload if name not in OWN and name not in STICKS]


def store_of(results: Results, name: str) -> str:
    """Where a system, or a yardstick, keeps its jobs."""
    if name in STICKS:
        return "postgres" if name == STICK else "sqlite"
    return str(results["sides"][OURS if name == OURS_NARROW else name]["store"])


def quickest(workload: Workload, names: Iterable[str], subject: Subject) -> str | None:
    """Who of these has the best main figure."""
    found = {name: it for name in names if (it := median(workload, name, subject.main.figure)) is not None}
    if not found:
        return None
    return min(found, key=lambda name: found[name] if subject.less else -found[name])


def ratio(workload: Workload, name: str, other: str | None, figure: str) -> float | None:
    """The median of a side's figure divided by another's in the same round."""
    found = [] if other is None else ratios(workload, name, other, figure)
    return statistics.median(found) if found else None


def rows(results: Results, what: str) -> list[Row]:
    """A workload's systems, the best first; who failed in every round is not among them."""
    workload, subject = results["workloads"][what], SUBJECTS[what]
    best = quickest(workload, peers_in(workload), subject)
    figure, found = subject.main.figure, []
    for name in workload:
        each = values(workload, name, figure)
        if not each:
            continue
        stick = STICK if store_of(results, name) == "postgres" else STICK_SQLITE
        row = Row(
            name,
            statistics.median(each),
            min(each),
            max(each),
            tuple(median(workload, name, column.figure) for column in subject.beside),
            ratio(workload, name, best, figure) if subject.ratio else None,
            ratio(workload, name, stick, figure)
            if name != stick and store_of(results, name) != "redis"
            else None,
        )
        found.append(row)
    return sorted(found, key=lambda row: row.value if subject.less else -row.value)


def first(results: Results, what: str) -> bool:
    """Whether Tidemill on PostgreSQL is before every peer on any store."""
    workload, subject = results["workloads"][what], SUBJECTS[what]
    return quickest(workload, [OURS, *peers_in(workload)], subject) == OURS


class Glance(NamedTuple):
    """One line of the summary: ours beside the quickest peer on the same store, and on any."""

    what: str
    ours: float
    same: str | None
    to_same: float | None
    any: str | None
    to_any: float | None


def glances(results: Results, ours: str = OURS) -> list[Glance]:
    """Every workload that Tidemill was measured in."""
    found, store = [], store_of(results, ours)
    for what, subject in SUBJECTS.items():
        workload: Workload = results["workloads"].get(what, {})
        value = median(workload, ours, subject.main.figure)
        if what == "w8" or value is None:
            continue
        others = peers_in(workload)
        near = quickest(workload, [name for name in others if store_of(results, name) == store], subject)
        best = quickest(workload, others, subject)
        figure = subject.main.figure
        found.append(
            Glance(
                what,
                value,
                near,
                ratio(workload, ours, near, figure),
                best,
                ratio(workload, ours, best, figure),
            )
        )
    return found


def scales(results: Results) -> list[tuple[str, list[float | None], list[float | None]]]:
    """W8: each side's rates with nothing, finished and pending jobs beside, and what part of the first the others are."""
    workload: Workload = results["workloads"].get("w8", {})
    names = dict.fromkeys(name.rpartition(", ")[0] for name in workload)
    found = []
    for name in names:
        rates = [median(workload, f"{name}, {beside}", "rate") for beside in BESIDE]
        parts = [ratio(workload, f"{name}, {beside}", f"{name}, empty", "rate") for beside in BESIDE[1:]]
        found.append((name, rates, parts))
    return sorted(found, key=lambda it: -(it[1][0] or 0.0))


def cell(value: float | None, form: str) -> str:
    """A number as it is written, or a dash."""
    return "–" if value is None else format(value, form)


def line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
