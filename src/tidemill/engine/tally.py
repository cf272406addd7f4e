"""What a runner has done, counted by task and by how it ended, with how long it took. Numbers only; it asks nobody.

A runner counts, tells its supervisor, and the supervisor adds up: the counters of a worker never go back when a runner is
replaced. The tasks that come first have a line of their own, the rest share one, so that no app makes the report grow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any, Self

from tidemill.domain.decide import COMPLETED
from tidemill.domain.exposition import MOST_LABELS, OTHER, Family, Histogram
from tidemill.domain.states import ExecutionState
from tidemill.engine.finisher import Settled

BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 3600.0)
"""The upper ends of the buckets, in seconds; beyond the last is one more."""

_SUCCEEDED = ExecutionState.SUCCEEDED.value
ERRORS = frozenset({ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.CRASHED})


class Line:
    """One task's numbers."""

    __slots__ = ("buckets", "outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0


class Tally:
    """Counts executions. One thread at a time writes; whoever reads meanwhile sees numbers that are a moment old."""

    def __init__(self, most: int = MOST_LABELS) -> None:
        self._most = most
        self._lines: dict[str, Line] = {}
        self.done = self.errors = 0

    def _line(self, task: str) -> Line:
        line = self._lines.get(task)
        if line is None:
            room = len(self._lines) - (OTHER in self._lines) < self._most
            line = self._lines.setdefault(task if room else OTHER, Line())
        return line

    def note(self, settled: Iterable[Settled]) -> None:
        """These executions have ended."""
        succeeded: dict[str, int] = {}  # the rule: they are counted without looking at what they are
        for item in settled:
            task, change = item.claim.task, item.transition
            line = self._lines.get(task) or self._line(task)
            if change is COMPLETED:
                succeeded[task] = succeeded.get(task, 0) + 1
            else:
                self._count(line, change.execution.value, 1)
                self.errors += change.execution in ERRORS
            if item.began is not None:
                took = max(item.ended - item.began, 0.0)
                line.buckets[bisect_left(BOUNDS, took)] += 1
                line.seconds += took
        for task, count in succeeded.items():
            self._count(self._line(task), _SUCCEEDED, count)

    def _count(self, line: Line, outcome: str, count: int) -> None:
        line.outcomes[outcome] = line.outcomes.get(outcome, 0) + count
        self.done += count

    def data(self) -> dict[str, Any]:
        """As it is told to a supervisor."""
        return {
            task: {
                "outcomes": dict(line.outcomes),
                "buckets": list(line.buckets),
                "seconds": line.seconds,
            }
            for task, line in list(self._lines.items())
        }

    def add(self, told: Mapping[str, Any]) -> Self:
        """Add what a runner told."""
        for task, facts in told.items():
            line = self._line(task)
            for name, count in facts["outcomes"].items():
                line.outcomes[name] = line.outcomes.get(name, 0) + count
            line.buckets = [
                before + more for before, more in zip(line.buckets, facts["buckets"], strict=True)
            ]
            line.seconds += facts["seconds"]
        return self

    def families(self) -> list[Family | Histogram]:
        """For a scraper."""
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
        return [ended, took]
