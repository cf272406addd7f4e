"""Metrics of one worker in the Prometheus text format.

They cover this worker only. The store has the figures for all workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.domain.prometheus import Family, Histogram, combined, rendered
from tidemill.engine.runner.counters import Counters

_COUNTED = (
    ("done", "tidemill_runner_jobs_total", "Executions a runner has ended since it started.", "counter"),
    ("errors", "tidemill_runner_errors_total", "Executions that ended with an error.", "counter"),
    ("running", "tidemill_runner_running", "Jobs that run in a runner.", "gauge"),
    ("buffered", "tidemill_runner_buffered", "Jobs a runner has claimed and not begun.", "gauge"),
    ("free", "tidemill_runner_free_slots", "Jobs a runner could begin now.", "gauge"),
)


def worker_metrics(
    alive: bool, ready: bool, details: Mapping[str, Any], counters: Mapping[str | None, Counters]
) -> str:
    """Render the metrics of a worker and its runners.

    The counters of a replaced runner start at zero under its new process id.
    """
    up = Family("tidemill_worker_up", "Whether the worker's own loop runs: 1, or 0.")
    up.add(int(alive))
    able = Family("tidemill_worker_ready", "Whether it can take jobs: 1, or 0.")
    able.add(int(alive and ready))
    leading = Family("tidemill_worker_leading", "Whether it runs the duties: 1, or 0.")
    stores: Mapping[str, Mapping[str, Any]] = details.get("stores", {})
    if stores:
        for name, store in stores.items():
            leading.add(int(bool(store.get("leading"))), store=name)
    else:
        leading.add(int(bool(details.get("leading"))))
    unhooked = Family(
        "tidemill_worker_fires_without_hooks_total",
        "Fires made without the app's enqueue hooks, because no runner answered in time.",
        "counter",
    )
    unhooked.add(int(details.get("fires_without_hooks", 0)))
    families: list[Family | Histogram] = [up, able, leading, unhooked]
    if stores:
        answers = Family("tidemill_worker_store_up", "Whether a store answers this worker: 1, or 0.")
        ready_runners = Family(
            "tidemill_worker_store_ready_runners", "Runners of a store that can take jobs."
        )
        for name, store in stores.items():
            answers.add(int(bool(store.get("answers"))), store=name)
            ready_runners.add(int(store.get("ready", 0)), store=name)
        families += [answers, ready_runners]
    for name, metric, words, kind in _COUNTED:
        family = Family(metric, words, "counter" if kind == "counter" else "gauge")
        for runner in details.get("runners", ()):
            if isinstance(value := runner.get(name), int):
                family.add(value, runner=str(runner.get("pid")), **_store_label(runner.get("store")))
        families.append(family)
    parts = {name: counters.families() for name, counters in counters.items() if name is not None}
    # An app with one store has no names of stores.
    own = combined("store", parts) if parts else counters.get(None, Counters()).families()
    return rendered([*families, *own])


def _store_label(store: str | None) -> dict[str, str]:
    return {} if store is None else {"store": store}
