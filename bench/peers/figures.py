"""Figures of the page: medians, spreads and ratios of each workload.

Pure: computes everything from the content of ``results.json``.
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
    """A workload on the page: its main figure and the other columns."""

    title: str
    about: str
    main: Column
    beside: tuple[Column, ...] = ()
    less: bool = False  #: less is better
    ratio: bool = True  #: whether a ratio to others means something
    variants: tuple[str, ...] = ()  #: each system is measured in each variant
    headline: str | None = None  #: the variant in the summary

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
_SHARE = Column("share", "share", ".0%")
SUBJECTS = {
    "w1": Subject(
        "W1: enqueue one by one", "One program enqueues; each call waits for the previous one.", _RATE
    ),
    "w2": Subject(
        "W2: enqueue in bulk",
        "One program enqueues 1,000 jobs per call, if the system has such a call.",
        _RATE,
    ),
    "w3": Subject(
        "W3: drain, one worker",
        "The store contains the jobs when one worker process starts; measured from the start of the first job until no job is left.",
        _RATE,
        _DRAIN,
    ),
    "w4": Subject("W4: drain, two workers", "The same with two worker processes.", _RATE, _DRAIN),
    "w5": Subject(
        "W5: latency",
        "A job every 50 ms to an idle, warm worker; milliseconds from the start of the enqueue call to the start of the job. "
        "The last three columns count from the return of the call, and may be negative: a job can start before the call returns.",
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
        "A worker without jobs. Processor time is measured in ticks of 10 ms, so the smallest figures are equal.",
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
        "Resident memory of all processes of a worker after W3, and the time from its start to the start of the first job.",
        Column("RSS MB", "rss_mb"),
        (Column("start to first job, s", "first_job_s", ".2f"),),
        less=True,
    ),
    "w8": Subject(
        "W8: with history and a backlog",
        "W3 up to the start of the last job, on PostgreSQL: with no, finished, or pending jobs in addition.",
        _RATE,
    ),
    "w9": Subject(
        "W9: jobs that compute",
        "Python loops of 1, 8 and 50 ms in as many worker processes as the machine has cores, one job at a time in each. "
        "The share is the rate divided by that of a bare loop in as many processes, measured immediately before.",
        _SHARE,
        variants=("1 ms", "8 ms", "50 ms"),
        headline="8 ms",
    ),
    "w10": Subject(
        "W10: jobs that block",
        "Functions that block their thread for 5 ms, as a database query does, in one worker process. "
        "The share is the rate divided by that of threads that are never idle. Systems without threads are not in the table.",
        _SHARE,
        variants=("10 threads", "50 threads"),
        headline="50 threads",
    ),
    "w11": Subject(
        "W11: jobs that wait",
        "Coroutines that wait for 1 s in one worker process. The share is the rate divided by that of slots that are never idle. "
        "Systems without coroutines are not in the table.",
        _SHARE,
        variants=("1,000 coroutines", "5,000 coroutines"),
        headline="1,000 coroutines",
    ),
    "w13": Subject(
        "W13: jobs that report",
        "W3 with jobs that log ten lines and report progress, as a share of the same jobs without. The lines are in the store afterwards. "
        "Most peers have no log of a job in their store, so only Tidemill was measured.",
        _SHARE,
        (
            _RATE,
            Column("jobs/s without", "plain_rate"),
            Column("lines/s", "lines_s"),
            Column("WAL bytes/job", "wal_bytes"),
        ),
        ratio=False,
    ),
    "w14": Subject(
        "W14: latency of a busy worker",
        "Jobs that block their thread for 100 ms come at random times to a worker with ten threads, which are busy for 70 % of their time; "
        "milliseconds from the start of the enqueue call to the start of the job. "
        "The columns for the return of the call are as in W5. Systems without threads are not in the table.",
        Column("p50, ms", "call_p50", ".2f"),
        (
            Column("p99, ms", "call_p99", ".2f"),
            Column("p50 from the return", "p50", ".2f"),
            Column("p99", "p99", ".2f"),
            Column("busy", "busy", ".0%"),
        ),
        less=True,
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
        """Return half the range as a part of the median."""
        return (self.high - self.low) / 2 / abs(self.value) if self.high > self.low and self.value else None


def peers_in(workload: Workload) -> list[str]:
    """Return the sides that are neither Tidemill nor a yardstick."""
    return [name for name in workload if name not in OWN and name not in STICKS]


def variant(workload: Workload, which: str) -> Workload:
    """Return the rounds of one variant by system.

    >>> variant({"a, 1 ms": [], "a, 8 ms": [{"share": 0.5}]}, "8 ms")
    {'a': [{'share': 0.5}]}
    """
    ending = f", {which}"
    return {name.removesuffix(ending): rounds for name, rounds in workload.items() if name.endswith(ending)}


def rounds_of(results: Results, what: str) -> Workload:
    """Return the rounds of a workload by system, those of the headline if it has variants."""
    workload, headline = results["workloads"].get(what, {}), SUBJECTS[what].headline
    return workload if headline is None else variant(workload, headline)


def store_of(results: Results, name: str) -> str:
    """Return the store of a system or a yardstick."""
    if name in STICKS:
        return "postgres" if name == STICK else "sqlite"
    return str(results["sides"][OURS if name == OURS_NARROW else name]["store"])


def quickest(workload: Workload, names: Iterable[str], subject: Subject) -> str | None:
    """Return the side with the best main figure."""
    medians = {name: it for name in names if (it := median(workload, name, subject.main.figure)) is not None}
    if not medians:
        return None
    return min(medians, key=lambda name: medians[name] if subject.less else -medians[name])


def ratio(workload: Workload, name: str, other: str | None, figure: str) -> float | None:
    """Return the median of a side's figure divided by that of another side in the same round."""
    per_round = [] if other is None else ratios(workload, name, other, figure)
    return statistics.median(per_round) if per_round else None


def rows(results: Results, what: str) -> list[Row]:
    """Return the systems of a workload, the best first, without those that failed in every round."""
    workload, subject = rounds_of(results, what), SUBJECTS[what]
    best = quickest(workload, peers_in(workload), subject)
    figure, systems = subject.main.figure, []
    for name in workload:
        figures = values(workload, name, figure)
        if not figures:
            continue
        stick = STICK if store_of(results, name) == "postgres" else STICK_SQLITE
        row = Row(
            name,
            statistics.median(figures),
            min(figures),
            max(figures),
            tuple(median(workload, name, column.figure) for column in subject.beside),
            ratio(workload, name, best, figure) if subject.ratio else None,
            ratio(workload, name, stick, figure)
            if name != stick and store_of(results, name) != "redis"
            else None,
        )
        systems.append(row)
    return sorted(systems, key=lambda row: row.value if subject.less else -row.value)


def first(results: Results, what: str) -> bool:
    """Return whether Tidemill on PostgreSQL is better than every peer on any store."""
    workload, subject = rounds_of(results, what), SUBJECTS[what]
    return quickest(workload, [OURS, *peers_in(workload)], subject) == OURS


class Glance(NamedTuple):
    """One line of the summary: Tidemill, the best peer on the same store, and the best peer on any store."""

    what: str
    ours: float
    same: str | None
    to_same: float | None
    any: str | None
    to_any: float | None


def glances(results: Results, ours: str = OURS) -> list[Glance]:
    """Return a line for every workload in which Tidemill was measured."""
    lines, store = [], store_of(results, ours)
    for what, subject in SUBJECTS.items():
        workload = rounds_of(results, what)
        value = median(workload, ours, subject.main.figure)
        if what == "w8" or value is None:
            continue
        others = peers_in(workload)
        near = quickest(workload, [name for name in others if store_of(results, name) == store], subject)
        best = quickest(workload, others, subject)
        figure = subject.main.figure
        lines.append(
            Glance(
                what,
                value,
                near,
                ratio(workload, ours, near, figure),
                best,
                ratio(workload, ours, best, figure),
            )
        )
    return lines


def scales(results: Results) -> list[tuple[str, list[float | None], list[float | None]]]:
    """W8: return each side's rates with no, finished and pending jobs in addition, and the ratios to the first."""
    workload: Workload = results["workloads"].get("w8", {})
    names = dict.fromkeys(name.rpartition(", ")[0] for name in workload)
    sides = []
    for name in names:
        rates = [median(workload, f"{name}, {beside}", "rate") for beside in BESIDE]
        parts = [ratio(workload, f"{name}, {beside}", f"{name}, empty", "rate") for beside in BESIDE[1:]]
        sides.append((name, rates, parts))
    return sorted(sides, key=lambda it: -(it[1][0] or 0.0))


def shares(results: Results, what: str) -> list[tuple[str, list[float | None], list[float | None]]]:
    """W9 to W11: return each side's shares and rates in the variants, the best share of the headline first."""
    subject, workload = SUBJECTS[what], results["workloads"][what]
    parts = [variant(workload, which) for which in subject.variants]
    names = dict.fromkeys(name for part in parts for name in part)
    sides = []
    for name in names:
        share = [median(part, name, "share") for part in parts]
        sides.append((name, share, [median(part, name, "rate") for part in parts]))
    at = subject.variants.index(str(subject.headline))
    return sorted(sides, key=lambda it: -(it[1][at] or 0.0))


def cell(value: float | None, form: str) -> str:
    """Format a number, or a dash."""
    return "–" if value is None else format(value, form)


def line(cells: Sequence[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
