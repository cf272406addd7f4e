"""Metrics of all ended jobs and executions: counters and histograms from the rollups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.prometheus import MOST_LABELS, OTHER, Exemplar, Family, Histogram
from tidemill.domain.rollups import BOUNDS, Distribution, EverTotals, JobTimes
from tidemill.domain.stats import DeclaredCounts
from tidemill.domain.trace_context import trace_id
from tidemill.stores.base import Store

SECONDS = tuple(bound / 1_000_000 for bound in BOUNDS)
"""The upper bounds of the buckets in seconds."""

_LATEST = 3
"""The latest ended jobs of each task among which the traces of exemplars are looked for."""


def ended_families(
    totals: EverTotals, examples: Mapping[str, Iterable[tuple[Exemplar, Exemplar]]]
) -> list[Family | Histogram]:
    """Return the counters and histograms; tasks beyond the most frequent ones share the label ``other``.

    ``examples`` are pairs of a run time and a wait, by task.
    """
    shown = _frequent(totals)
    return [*_counters(totals, shown), *_histograms(totals.times, shown, examples)]


def _frequent(totals: EverTotals) -> frozenset[str]:
    jobs: dict[str, int] = defaultdict(int)
    for row in totals.ended:
        jobs[row.task] += row.jobs
    ordered = sorted(jobs, key=lambda task: (-jobs[task], task))
    return frozenset(ordered[:MOST_LABELS])


def _counters(totals: EverTotals, shown: frozenset[str]) -> list[Family]:
    ended: dict[tuple[str, str, str], int] = defaultdict(int)
    retried: dict[str, int] = defaultdict(int)
    executed: dict[tuple[str, str], int] = defaultdict(int)
    for row in totals.ended:
        # A queue is a name of the user's choice, and some choose many.
        task, queue = (row.task, row.queue) if row.task in shown else (OTHER, OTHER)
        ended[task, queue, row.state.value] += row.jobs
        retried[task] += row.retried
    for execution in totals.executed:
        task = execution.task if execution.task in shown else OTHER
        executed[task, execution.state] += execution.executions
    jobs = Family(
        "tidemill_jobs_ended_total",
        "Jobs that ended, by task, queue and status. A retried job ends again.",
        "counter",
    )
    for (task, queue, status), number in sorted(ended.items()):
        jobs.add(number, task=task, queue=queue, status=status)
    again = Family(
        "tidemill_jobs_retried_total", "Ended jobs that took more than one attempt, by task.", "counter"
    )
    for task, number in sorted(retried.items()):
        again.add(number, task=task)
    executions = Family("tidemill_executions_total", "Executions that ended, by task and status.", "counter")
    for (task, status), number in sorted(executed.items()):
        executions.add(number, task=task, status=status)
    return [jobs, again, executions]


def _histograms(
    times: Mapping[str, JobTimes],
    shown: frozenset[str],
    examples: Mapping[str, Iterable[tuple[Exemplar, Exemplar]]],
) -> list[Histogram]:
    run = Histogram("tidemill_job_run_seconds", "How long ended jobs ran, by task.", bounds=SECONDS)
    wait = Histogram(
        "tidemill_job_wait_seconds",
        "How long after they were due ended jobs started, by task.",
        bounds=SECONDS,
    )
    named: dict[str, list[JobTimes]] = defaultdict(list)
    for task, measured in times.items():
        named[task if task in shown else OTHER].append(measured)
    for task, rows in sorted(named.items()):
        _add(run, task, (row.run for row in rows))
        _add(wait, task, (row.wait for row in rows))
        for ran, waited in examples.get(task, ()):
            run.exemplars.append(({"task": task}, ran))
            wait.exemplars.append(({"task": task}, waited))
    return [run, wait]


def _add(histogram: Histogram, task: str, parts: Iterable[Distribution]) -> None:
    total = Distribution.of(bucket for part in parts for bucket in part.buckets)
    histogram.add(total.counts(), total.time.total_seconds(), task=task)


def exemplars(store: Store, totals: EverTotals) -> dict[str, list[tuple[Exemplar, Exemplar]]]:
    """Return run times and waits of the latest jobs that belong to a trace, by task, oldest first."""
    timings = store.lately(_frequent(totals), tenant=ALL_TENANTS, per_task=_LATEST)
    rows = store.get([timing.id for timing in timings], tenant=ALL_TENANTS) if timings else []
    traces = {row.id: trace_id(row.details.headers) for row in rows}
    pairs: dict[str, list[tuple[Exemplar, Exemplar]]] = defaultdict(list)
    for timing in reversed(timings):
        trace = traces.get(timing.id)
        if trace is None or timing.run_time is None or timing.lag is None:
            continue
        ran, waited = timing.run_time.total_seconds(), timing.lag.total_seconds()
        at = timing.finished_at
        pairs[timing.task].append((Exemplar(trace, ran, at), Exemplar(trace, waited, at)))
    return pairs


def declared_families(counts: DeclaredCounts) -> list[Family]:
    """Return the numbers of definitions and schedules."""
    definitions = Family("tidemill_definitions", "Definitions by status: active or disabled.")
    definitions.add(counts.definitions, status="active")
    definitions.add(counts.disabled_definitions, status="disabled")
    schedules = Family("tidemill_schedules", "Schedules by status: active or disabled.")
    schedules.add(counts.schedules, status="active")
    schedules.add(counts.disabled_schedules, status="disabled")
    return [definitions, schedules]
