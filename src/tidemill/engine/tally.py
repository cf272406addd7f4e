"""What a runner has done, counted by task and by how it ended, with how long it took; and how its claims went. Numbers only; it
asks nobody.

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


CLAIMS = ("full", "some", "empty", "failed")
"""How a claim went: it gave all that was asked for, some of it, nothing, or was not answered."""

CONTENTION = ("busy", "lost")
"""The store was held by others for too long; the end of a job was not written, because its lease had passed on."""


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
        self.claims = dict.fromkeys(CLAIMS, 0)
        self.contention = dict.fromkeys(CONTENTION, 0)
        self.claimed = 0

    def claim(self, asked: int, claimed: int | None) -> None:
        """A claim for so many gave so many; None: it was not answered. One thread at a time, as for ``note``, which may be another."""
        if claimed is None:
            how = "failed"
        else:
            how = "full" if claimed >= asked else "some" if claimed else "empty"
            self.claimed += claimed
        self.claims[how] += 1

    def collide(self, kind: str, count: int = 1) -> None:
        """Others were in the way."""
        self.contention[kind] += count

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
        }

    def add(self, told: Mapping[str, Any]) -> Self:
        """Add what a runner told."""
        for task, facts in told.get("tasks", {}).items():
            line = self._line(task)
            for name, count in facts["outcomes"].items():
                line.outcomes[name] = line.outcomes.get(name, 0) + count
            line.buckets = [
                before + more for before, more in zip(line.buckets, facts["buckets"], strict=True)
            ]
            line.seconds += facts["seconds"]
        for name, count in told.get("claims", {}).items():
            self.claims[name] += count
        for name, count in told.get("contention", {}).items():
            self.contention[name] += count
        self.claimed += told.get("claimed", 0)
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
        return [ended, took, *self._claiming()]

    def _claiming(self) -> list[Family]:
        asked = Family(
            "tidemill_worker_claims_total",
            "Claims by how they went: all that was asked for, some, nothing, or no answer.",
            "counter",
        )
        for how, count in self.claims.items():
            asked.add(count, result=how)
        claimed = Family("tidemill_worker_claimed_jobs_total", "Jobs that were claimed here.", "counter")
        claimed.add(self.claimed)
        collided = Family(
            "tidemill_worker_contention_total",
            "How often the store was held by others for too long (busy), and ends of jobs whose lease had passed on (lost).",
            "counter",
        )
        for kind, count in self.contention.items():
            collided.add(count, kind=kind)
        return [asked, claimed, collided]
