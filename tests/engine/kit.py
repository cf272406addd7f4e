"""Helpers for the engine tests: a recording outlet, and a runner of single claims."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.clock import ManualClock
from tidemill.domain.job import Claim, JobRow, LogEntry, Progress, ProgressReport
from tidemill.domain.large_values import SpilledText
from tidemill.domain.record import Record
from tidemill.domain.states import JobState
from tidemill.engine.runner.execution import ExecutionEnd, arun, run
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.task import declare

START = datetime(2026, 1, 1, tzinfo=UTC)
ID = UUID("0197a000-0000-7000-8000-00000000000a")
MINUTE = timedelta(minutes=1)


class Notes:
    """An outlet that records everything."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock(START)
        self.reports: list[Progress] = []
        self.lines: list[LogEntry] = []
        self.kept: dict[str, str] = {}
        self.spilled: list[SpilledText] = []
        self.cancelled = False
        self.start_by: float | None = None
        self.store_name: str | None = None
        self.declared = declare(lambda: None, TaskOptions(name="work"))

    def renew_start(self) -> None:
        """Do nothing: no job here is under a rate limit."""

    def report(self, progress: Progress) -> None:
        self.reports.append(progress)

    def log(self, entry: LogEntry) -> None:
        self.lines.append(entry)

    def checkpoint(self, name: str) -> str | None:
        return self.kept.get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        self.kept[name] = value

    def is_cancelled(self) -> bool:
        return self.cancelled

    def is_timed_out(self) -> bool:
        return False

    def now(self) -> datetime:
        return self.clock.now()

    @property
    def claim(self) -> Claim:
        return a_claim()

    @property
    def connections(self) -> None:
        return None

    def completing(self) -> float:
        return 0.0

    @property
    def record(self) -> Record:
        return Record.FULL

    @property
    def is_private(self) -> bool:
        return False

    def spill(self, value: SpilledText) -> str:
        self.spilled.append(value)
        return str(value)

    def fetch(self, text: str) -> str:
        return next(value.content for value in self.spilled if value == text)

    def flush(self) -> None: ...

    def unwritten(self) -> tuple[list[LogEntry], list[ProgressReport]]:
        return [], []


def a_job(**fields: Any) -> JobRow:
    given: dict[str, Any] = {
        "id": ID, "task": "work", "state": JobState.RUNNING, "tenant": "acme", "queue": "default", "priority": 0,
        "args": "{}", "attempt": 1, "max_attempts": 4, "crashes": 0, "token": 3, "run_at": START, "created_at": START,
    }  # fmt: skip
    return JobRow(**given | fields)


def a_claim(args: str = "{}") -> Claim:
    return Claim(
        ID,
        "work",
        "default",
        "acme",
        0,
        1,
        4,
        0,
        3,
        START,
        START,
        None,
        MINUTE,
        args,
        None,
        None,
        False,
        None,
    )


class World:
    """Runs tasks one by one and records their output."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.outlet = Notes(self.clock)

    def run(
        self, target: Callable[..., Any], args: str = "{}", hooks: Hooks = NO_HOOKS, **options: Any
    ) -> ExecutionEnd:
        declared = declare(target, TaskOptions(name="work", **options))
        return run(declared, a_claim(args), self.job(args), self.outlet, self.clock, hooks)

    async def arun(self, target: Callable[..., Any], args: str = "{}") -> ExecutionEnd:
        declared = declare(target, TaskOptions(name="work"))
        return await arun(declared, a_claim(args), self.job(args), self.outlet, self.clock)

    def job(self, args: str = "{}") -> JobRow:
        return a_job(args=args, timeout=MINUTE)


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work
