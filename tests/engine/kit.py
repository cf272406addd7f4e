"""Helpers for the engine tests: a recording outlet, and a runner of single claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.clock import ManualClock
from tidemill.domain.job import Claim, JobRow, LogEntry, Progress
from tidemill.domain.large_values import SpilledText
from tidemill.domain.node_results import NO_RESULTS, NodeResult
from tidemill.domain.record import Record
from tidemill.domain.signals import SignalFence
from tidemill.domain.states import JobState
from tidemill.engine.completion import Unwritten
from tidemill.engine.job_ends import GroupEnds, JobEnd, group_ends, job_ends, stop_group
from tidemill.engine.lifespan import Lifetime, OwnLoopLifetime
from tidemill.engine.runner.execution import ExecutionEnd, arun, run
from tidemill.engine.signal_links import signal_url
from tidemill.engine.signal_waits import found_event
from tidemill.errors import Cancel
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.hooks import NO_HOOKS, Hooks
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.task import declare

START = datetime(2026, 1, 1, tzinfo=UTC)
ID = UUID("0197a000-0000-7000-8000-00000000000a")
MINUTE = timedelta(minutes=1)


class Notes:
    """An outlet that records everything, and whose job belongs to an empty store in memory."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock(START)
        self.reports: list[Progress] = []
        self.lines: list[LogEntry] = []
        self.kept: dict[str, str] = {}
        self.streams: dict[str, list[tuple[int, str]]] = {}
        self.spilled: list[SpilledText] = []
        self.cancelled = False
        self.start_by: float | None = None
        self.store_name: str | None = None
        self.life: Lifetime = OwnLoopLifetime(NO_HOOKS)
        self.declared = declare(lambda: None, TaskOptions(name="work"))
        self.store = MemoryStore(self.clock)

    def renew_start(self) -> None:
        """Do nothing: no job here is under a rate limit."""

    def report(self, progress: Progress) -> None:
        self.reports.append(progress)

    def log(self, entry: LogEntry) -> None:
        self.lines.append(entry)

    def write_stream(self, name: str, items: Sequence[tuple[int, str]]) -> None:
        self.streams.setdefault(name, []).extend(items)

    def checkpoint(self, name: str) -> str | None:
        return self.kept.get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        self.kept[name] = value

    def step_records(self) -> Mapping[str, str]:
        return dict(self.kept)

    def record_steps(self, records: Mapping[str, str]) -> None:
        self.kept.update(records)

    async def arecord_steps(self, records: Mapping[str, str]) -> None:
        self.record_steps(records)

    def read_results(self) -> Mapping[UUID, NodeResult]:
        return NO_RESULTS

    @property
    def flow_store(self) -> Store:
        return self.store

    def job_ends(self, ids: Sequence[UUID]) -> list[JobEnd]:
        return job_ends(self.store, ids, self.claim.tenant)

    def group_ends(self, id: UUID) -> GroupEnds:
        return group_ends(self.store, id, self.claim.tenant)

    def stop_group(self, id: UUID, reason: str) -> None:
        stop_group(self.store, id, reason, self.claim.tenant, self.now())

    def take_signal(self, names: Sequence[str], record: str, before: datetime | None) -> str | None:
        fence = SignalFence(self.claim.id, self.claim.token, self.claim.worker)
        taken = self.store.take_signal(fence, names, record, before=before, now=self.now())
        if taken.lost:
            raise Cancel("the job is no longer held")
        return taken.record

    def find_event(self, name: str, match: str, since: datetime | None) -> str | None:
        return found_event(self.store, self.claim, name, match, since)

    def signal_url(self, name: str, ttl: timedelta) -> str:
        return signal_url("https://jobs.example.com", self.claim, name, ttl, self.now())

    def store_now(self) -> datetime:
        return self.now()

    def pause(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def apause(self, seconds: float) -> None:
        self.clock.advance(seconds)

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

    def unwritten(self) -> Unwritten:
        return Unwritten()


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
