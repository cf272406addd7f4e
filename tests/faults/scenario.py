"""Handmade evidence of a chaos run, for tests of the invariant checks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from tests.domain.strategies import a_job
from tests.faults.cluster import Span
from tests.faults.evidence import Evidence, Timetable
from tests.faults.invariants_more import judge
from tests.faults.ledger import BEGIN, END, TICK, Line
from tests.faults.schedulers import PLANS, Effect

from tidemill.domain.job import Details, Execution
from tidemill.domain.schedules import Fired
from tidemill.domain.states import ExecutionState, JobState

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WORKER, OTHER = uuid4(), uuid4()
PID, ANOTHER = 101, 102
_E, _S = ExecutionState, JobState


class Scenario:
    """Builds evidence. Times are seconds after noon, which is also monotonic zero."""

    def __init__(self) -> None:
        self.evidence = Evidence(epoch_at=NOON, pids={WORKER: PID, OTHER: ANOTHER})

    def job(
        self, task: str = "noop", *, state: JobState = _S.COMPLETED, at: float = 0.0, **fields: Any
    ) -> UUID:
        """Add a job that one execution completed, half a second after its creation."""
        id = uuid4()
        made: dict[str, Any] = {
            "id": id, "task": task, "state": state, "attempt": 1, "max_attempts": 4, "crashes": 0, "token": 1,
            "run_at": NOON + at * SECOND, "created_at": NOON + at * SECOND, "result": "1", "args": "{}", "details": Details(),
            "finished_at": NOON + (at + 0.5) * SECOND, "worker": WORKER,
        }  # fmt: skip
        self.evidence.jobs[id] = a_job(**(made | fields))
        self.evidence.accepted.append(id)
        if self.evidence.jobs[id].token:
            self.execution(id, 1, at=at)
            self.run(id, 1, at + 0.1, at + 0.4)
        return id

    def execution(
        self,
        id: UUID,
        number: int,
        *,
        state: ExecutionState = _E.SUCCEEDED,
        attempt: int = 1,
        worker: UUID = WORKER,
        at: float = 0.0,
    ) -> None:
        began, ended = NOON + at * SECOND, NOON + (at + 0.5) * SECOND
        self.evidence.executions[id].append(
            Execution(id, number, attempt, state, worker, began, began, ended)
        )

    def run(
        self, id: UUID, token: int, begin: float, end: float, *, pid: int = PID, well: bool = True
    ) -> None:
        for kind, at in ((BEGIN, begin), (END if well else TICK, end)):
            self.evidence.lines.append(Line(kind, id, token, 1, pid, 1, at))

    def change(self, id: UUID, **fields: Any) -> None:
        self.evidence.jobs[id] = replace(self.evidence.jobs[id], **fields)

    def crashed_once(self, *, at: float = 0.0, pid: int = PID) -> UUID:
        """Add a job whose first execution crashed, and whose second one completed it."""
        id = self.job(at=at, token=2, attempt=2, crashes=1, result="2")
        self.evidence.executions[id].clear()
        self.evidence.lines = [line for line in self.evidence.lines if line.job != id]
        self.execution(id, 1, state=_E.CRASHED, at=at)
        self.execution(id, 2, attempt=2, at=at + 1, worker=OTHER)
        self.run(id, 1, at + 0.1, at + 0.3, pid=pid, well=False)
        self.run(id, 2, at + 1.1, at + 1.4, pid=ANOTHER)
        self.change(id, worker=OTHER, finished_at=NOON + (at + 1.5) * SECOND)
        return id

    def schedule(self, count: int = 10) -> Timetable:
        """Add a schedule that fires every second, with a job and an effect for each fire."""
        id, fires, effects = uuid4(), [], []
        for second in range(1, count + 1):
            fire_at = NOON + second * SECOND
            job = self.job("tick", at=second, details=Details(schedule_id=id, fire_at=fire_at))
            fires.append(Fired(id, fire_at, job_id=job))
            effects.append(Effect("all", fire_at, job, 1))
        table = Timetable(PLANS[2], NOON + SECOND / 2, NOON + (count + 0.5) * SECOND, fires, effects)
        self.evidence.timetables.append(table)
        return table

    def broken(self) -> set[str]:
        evidence = replace(self.evidence)
        return {name for name, finding in judge(evidence).items() if finding.broken}


def span(began: float, ended: float, *pids: int) -> Span:
    made = Span("handmade", frozenset(pids))
    made.began, made.ended = began, ended
    made.began_at, made.ended_at = NOON + began * SECOND, NOON + ended * SECOND
    return made
