"""Counters of a runner: executions by task and outcome, run times and claims.

A runner counts and reports to its supervisor. The supervisor adds up the reports, so that a worker's counters never
decrease when a runner is replaced. Only a limited number of tasks is counted separately; the rest share one line, which
bounds the size of the report.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tidemill.domain.decide import COMPLETED
from tidemill.domain.outcome import STOPPING
from tidemill.domain.prometheus import MOST_LABELS, OTHER, Family, Histogram
from tidemill.domain.states import ExecutionState

if TYPE_CHECKING:
    from tidemill.engine.exchange.finisher import Settled

BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0)
"""Upper bounds of the histogram buckets in seconds. One more bucket follows the last."""

_SUCCEEDED = ExecutionState.SUCCEEDED.value
ERRORS = frozenset({ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.CRASHED})


CLAIMS = ("full", "some", "empty", "failed")
"""Results of a claim: as many jobs as requested, fewer, none, or a failure."""

CONTENTION = ("busy", "lost")
"""Conflicts: ``busy`` (the store was locked for too long) and ``lost`` (an outcome was refused for a lost lease)."""


class TaskCounters:
    """Counters of one task."""

    __slots__ = ("buckets", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0


class Counters:
    """Counts executions. Only one thread at a time may write; readers may see slightly outdated numbers."""

    def __init__(self, most: int = MOST_LABELS) -> None:
        self._most = most
        self._lines: dict[str, TaskCounters] = {}
        self.done = self.errors = 0
        self.handed_back = 0  #: how many of those done were released because the worker stopped
        self.claims = dict.fromkeys(CLAIMS, 0)
        self.contention = dict.fromkeys(CONTENTION, 0)
        self.claimed = 0
        self.steps = self.suspensions = 0

    def claim(self, asked: int, claimed: int | None) -> None:
        """Count a claim that requested ``asked`` jobs and returned ``claimed``; None if it failed.

        Only one thread at a time may call this, not necessarily the one that calls ``note``.
        """
        if claimed is None:
            how = "failed"
        else:
            how = "full" if claimed >= asked else "some" if claimed else "empty"
            self.claimed += claimed
        self.claims[how] += 1

    def collide(self, kind: str, count: int = 1) -> None:
        """Count a conflict with other users of the store."""
        self.contention[kind] += count

    def _line(self, task: str) -> TaskCounters:
        line = self._lines.get(task)
        if line is None:
            room = len(self._lines) - (OTHER in self._lines) < self._most
            line = self._lines.setdefault(task if room else OTHER, TaskCounters())
        return line

    def note(self, settled: Sequence[Settled]) -> None:
        """Count these finished executions."""
        tasks = [item.claim.task for item in settled]
        for task in set(tasks):
            alone = tasks.count(task) == len(tasks)
            self._note(
                self._line(task),
                settled if alone else [item for item in settled if item.claim.task == task],
            )

    def _note(self, line: TaskCounters, settled: Sequence[Settled]) -> None:
        """Count finished executions of one task. Most of them are short and succeed, so these are counted together."""
        others = [item.transition for item in settled if item.transition is not COMPLETED]
        if len(others) < len(settled):
            self._count(line, _SUCCEEDED, len(settled) - len(others))
        for change in others:
            self._count(line, change.execution.value, 1)
            self.errors += change.execution in ERRORS
            self.suspensions += change.execution is ExecutionState.SUSPENDED
            self.handed_back += change.execution is ExecutionState.RELEASED and change.reason == STOPPING
        times = [item.ended - item.began for item in settled if item.began is not None]
        if times and min(times) < 0:
            times = [max(took, 0.0) for took in times]
        longer = [took for took in times if took > BOUNDS[0]]
        line.buckets[0] += len(times) - len(longer)
        for took in longer:
            line.buckets[bisect_left(BOUNDS, took)] += 1
        line.seconds += sum(times)

    def _count(self, line: TaskCounters, outcome: str, count: int) -> None:
        line.outcomes[outcome] = line.outcomes.get(outcome, 0) + count
        self.done += count

    def data(self) -> dict[str, Any]:
        """Return the counters as sent to a supervisor."""
        return {
            "tasks": {
                task: {
                    "outcomes": dict(line.outcomes),
                    "buckets": list(line.buckets),
                    "seconds": line.seconds,
                }
                for task, line in list(self._lines.items())
            },
            "claims": dict(self.claims),
            "contention": dict(self.contention),
            "claimed": self.claimed,
            "steps": self.steps,
            "suspensions": self.suspensions,
        }

    def add(self, told: Mapping[str, Any]) -> Self:
        """Add the counters that a runner reported."""
        for task, data in told.get("tasks", {}).items():
            line = self._line(task)
            for name, count in data["outcomes"].items():
                line.outcomes[name] = line.outcomes.get(name, 0) + count
            line.buckets = [before + more for before, more in zip(line.buckets, data["buckets"], strict=True)]
            line.seconds += data["seconds"]
        for name, count in told.get("claims", {}).items():
            self.claims[name] += count
        for name, count in told.get("contention", {}).items():
            self.contention[name] += count
        self.claimed += told.get("claimed", 0)
        self.steps += told.get("steps", 0)
        self.suspensions += told.get("suspensions", 0)
        return self

    def families(self) -> list[Family | Histogram]:
        """Return the counters as metric families."""
        ended = Family(
            "tidemill_worker_executions_total", "Executions that ended here, by task and outcome.", "counter"
        )
        took = Histogram(
            "tidemill_worker_execution_seconds", "How long executions took, by task.", bounds=BOUNDS
        )
        for task, line in sorted(self._lines.items()):
            for outcome, count in sorted(line.outcomes.items()):
                ended.add(count, task=task, outcome=outcome)
            took.add(line.buckets, line.seconds, task=task)
        steps = Family(
            "tidemill_steps_total", "Steps of durable functions that were recorded here.", "counter"
        )
        steps.add(self.steps)
        suspensions = Family(
            "tidemill_suspensions_total",
            "Executions that ended because their job waits for something.",
            "counter",
        )
        suspensions.add(self.suspensions)
        return [ended, took, *self._claiming(), steps, suspensions]

    def _claiming(self) -> list[Family]:
        asked = Family(
            "tidemill_worker_claims_total",
            "Claims by result: all requested jobs, some, none, or no response.",
            "counter",
        )
        for how, count in self.claims.items():
            asked.add(count, result=how)
        claimed = Family("tidemill_worker_claimed_jobs_total", "Jobs that were claimed here.", "counter")
        claimed.add(self.claimed)
        collided = Family(
            "tidemill_worker_contention_total",
            "How often the store was locked by others for too long (busy), and results of jobs whose lease was lost (lost).",
            "counter",
        )
        for kind, count in self.contention.items():
            collided.add(count, kind=kind)
        return [asked, claimed, collided]
