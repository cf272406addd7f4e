"""Metrics of one worker in the Prometheus text format.

They cover this worker only. The store has the figures for all workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.domain.prometheus import Family, Histogram, rendered
from tidemill.engine.runner.counters import Counters

_COUNTED = (
    ("done", "tidemill_runner_jobs_total", "Executions a runner has ended since it started.", "counter"),
    ("errors", "tidemill_runner_errors_total", "Executions that ended with an error.", "counter"),
    ("running", "tidemill_runner_running", "Jobs that run in a runner.", "gauge"),
    ("buffered", "tidemill_runner_buffered", "Jobs a runner has claimed and not begun.", "gauge"),
    ("free", "tidemill_runner_free_slots", "Jobs a runner could begin now.", "gauge"),
)


def worker_metrics(alive: bool, ready: bool, details: Mapping[str, Any], counters: Counters) -> str:
    """Render the metrics of a worker and its runners.

    The counters of a replaced runner start at zero under its new process id.
    """
    up = Family("tidemill_worker_up", "Whether the worker's own loop runs: 1, or 0.")
    up.add(int(alive))
    able = Family("tidemill_worker_ready", "Whether it can take jobs: 1, or 0.")
    able.add(int(alive and ready))
    leading = Family("tidemill_worker_leading", "Whether it runs the duties: 1, or 0.")
    leading.add(int(bool(details.get("leading"))))
    unhooked = Family(
        "tidemill_worker_fires_without_hooks_total",
        "Fires made without the app's enqueue hooks, because no runner answered in time.",
        "counter",
    )
    unhooked.add(int(details.get("fires_without_hooks", 0)))
    families: list[Family | Histogram] = [up, able, leading, unhooked]
    for name, metric, words, kind in _COUNTED:
        family = Family(metric, words, "counter" if kind == "counter" else "gauge")
        for runner in details.get("runners", ()):
            if isinstance(value := runner.get(name), int):
                family.add(value, runner=str(runner.get("pid")))
        families.append(family)
    families += counters.families()
    return rendered(families)
