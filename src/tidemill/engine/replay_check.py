"""A trial replay of durable functions: the code of this process against the recorded steps of unfinished jobs.

Nothing is written. A replay ends at the first step without a record, at a wait, or at the end of the function. The code between
steps runs, as at every resume, and jobs that it enqueues are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NoReturn
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim, JobRow, LogEntry, Progress
from tidemill.domain.large_values import SpilledText
from tidemill.domain.node_results import NO_RESULTS, NodeResult
from tidemill.domain.record import Record
from tidemill.domain.steps import PREFIX
from tidemill.engine.completion import Unwritten
from tidemill.engine.job_ends import GroupEnds, JobEnd, group_ends, job_ends
from tidemill.engine.lifespan import Lifetime
from tidemill.engine.runner.execution import run
from tidemill.engine.signal_links import signal_url
from tidemill.engine.signal_waits import found_event
from tidemill.engine.steps import StepLog, Talk
from tidemill.engine.suspension import Suspension
from tidemill.errors import Review, Signal, Snooze, StepChanged
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value
from tidemill.tasks.ambient import Audited, collecting, stop_collecting
from tidemill.tasks.task import Declared


@dataclass
class Replayed:
    """The result of the replay of one job."""

    job: UUID
    task: str
    runs: str | None = None  #: the first step without a record, which would run
    not_reached: list[str] = field(default_factory=list)  #: recorded steps before which the replay ended
    changed: list[str] = field(default_factory=list)  #: recorded steps that are called in another way
    refused: str | None = None  #: why the job would not resume

    @property
    def is_changed(self) -> bool:
        """Whether the job would take another way than its records."""
        return bool(self.not_reached or self.changed or self.refused)

    def words(self) -> str:
        """The findings in words."""
        parts = [self.refused] if self.refused else []
        parts += self.changed
        if self.not_reached:
            where = "before the function ends" if self.runs is None else f"before {self.runs} runs"
            parts.append(f"recorded steps are not reached {where}: {', '.join(self.not_reached)}")
        elif self.runs is not None:
            parts.append(f"continues with {self.runs}")
        return "; ".join(parts) or "replays as recorded"


class ReplayEnd(BaseException):
    """Raised where the replay meets something that is not recorded."""


class _ReplayLog(StepLog):
    """The steps of a replay: recorded ones return their results, and anything else ends the replay."""

    outlet: ReplayOutlet

    def __init__(self, outlet: Any, say: Callable[[str, str], None]) -> None:
        super().__init__(outlet, say)
        outlet.steps = self

    def running(self, name: str) -> NoReturn:
        self.outlet.end(name)

    def write(self, name: str, record: str, *, lazy: bool = False) -> Talk[None]:
        yield from self.records()
        if not lazy:
            self.outlet.end(name)

    def suspend(self, name: str, suspension: Suspension) -> Talk[NoReturn]:
        records = yield from self.records()
        self.outlet.end(None if name in records or not suspension.jobs else name)
        raise AssertionError

    def changed(self, name: str, what: str) -> None:
        self.outlet.findings.changed.append(f"step {name} was recorded with {what}")

    def reached(self) -> tuple[set[str], set[str]]:
        """The recorded steps, and the names that this execution reached."""
        return {name for name in self._records or () if not name.startswith("@")}, self._names


class ReplayOutlet:
    """The output of a replayed job: it reads the store, and drops everything else."""

    start_by: float | None = None
    step_log_type = _ReplayLog
    connections = None
    record = Record.FULL
    is_private = False

    def __init__(
        self, store: Store, declared: Declared, claim: Claim, clock: Clock, life: Lifetime, name: str | None
    ) -> None:
        self._store, self.declared, self.claim = store, declared, claim
        self._clock, self.life, self.store_name = clock, life, name
        self.findings = Replayed(claim.id, claim.task)
        self.steps: _ReplayLog | None = None

    def end(self, name: str | None) -> NoReturn:
        """End the replay at this step."""
        if self.findings.runs is None:
            self.findings.runs = name
        raise ReplayEnd(name or "")

    # Reads -------------------------------------------------------------------------------------------------------------

    def step_records(self) -> Mapping[str, str]:
        return self._store.checkpoints(self.claim.id, tenant=self.claim.tenant)

    def checkpoint(self, name: str) -> str | None:
        return self.step_records().get(name)

    def job_ends(self, ids: Sequence[UUID]) -> list[JobEnd]:
        return job_ends(self._store, ids, self.claim.tenant)

    def group_ends(self, id: UUID) -> GroupEnds:
        return group_ends(self._store, id, self.claim.tenant)

    def find_event(self, name: str, match: str, since: datetime | None) -> str | None:
        return found_event(self._store, self.claim, name, match, since)

    def signal_url(self, name: str, ttl: timedelta) -> str:
        return signal_url(self.life.site_url, self.claim, name, ttl, self.now())

    def fetch(self, text: str) -> str:
        return read_value(self._store, text)

    def read_results(self) -> Mapping[UUID, NodeResult]:
        return NO_RESULTS

    @property
    def flow_store(self) -> Store:
        return self._store

    def store_now(self) -> datetime:
        return self._clock.now()

    def now(self) -> datetime:
        return self._clock.now()

    def is_cancelled(self) -> bool:
        return False

    def is_timed_out(self) -> bool:
        return False

    def cancel_reason(self) -> str | None:
        return None

    # Dropped output ----------------------------------------------------------------------------------------------------

    def report(self, progress: Progress) -> None: ...

    def log(self, entry: LogEntry) -> None: ...

    def save_checkpoint(self, name: str, value: str) -> None: ...

    def flush(self) -> None: ...

    def renew_start(self) -> None: ...

    def write_stream(self, name: str, items: Sequence[tuple[int, str]]) -> None: ...

    def unwritten(self) -> Unwritten:
        return Unwritten()

    def spill(self, value: SpilledText) -> str:
        return str(value)

    # Effects, which end the replay -------------------------------------------------------------------------------------

    def record_steps(self, records: Mapping[str, str]) -> None:
        self.end(next((name for name in records if not name.startswith("@")), None))

    async def arecord_steps(self, records: Mapping[str, str]) -> None:
        self.record_steps(records)

    def take_signal(self, names: Sequence[str], record: str, before: datetime | None) -> str | None:
        self.end(None)

    def stop_group(self, id: UUID, reason: str) -> None:
        self.end(None)

    def completing(self) -> float:
        self.end("ctx.complete")

    def pause(self, seconds: float) -> None:
        self.end(None)

    async def apause(self, seconds: float) -> None:
        self.end(None)


class _Dropped:
    """Takes the jobs that a replayed function enqueues, and drops them."""

    only = False
    is_open = True

    def __init__(self, declared: Declared) -> None:
        self.declared = declared

    def add(self, jobs: Sequence[Any], audit: Sequence[Audited]) -> None: ...


def has_steps(store: Store, job: JobRow) -> bool:
    """Whether steps of a job are recorded."""
    return any(name.startswith(PREFIX) for name in store.checkpoints(job.id, tenant=job.tenant))


def replay(
    store: Store, declared: Declared, job: JobRow, clock: Clock, life: Lifetime, store_name: str | None = None
) -> Replayed:
    """Run the function of a job on its recorded steps, without writing."""
    outlet = ReplayOutlet(store, declared, _claim(job), clock, life, store_name)
    findings = outlet.findings
    _, token = collecting(_Dropped(declared))
    try:
        ended = run(declared, outlet.claim, job, outlet, clock)
    finally:
        stop_collecting(token)
    error = ended.exception
    if isinstance(error, Review | Snooze | StepChanged) or (
        error is not None and not isinstance(error, Signal | ReplayEnd)
    ):
        findings.refused = f"{type(error).__name__}: {error}"
    if outlet.steps is not None:
        recorded, reached = outlet.steps.reached()
        findings.not_reached = sorted(recorded - reached)
    return findings


def _claim(job: JobRow) -> Claim:
    return Claim(
        job.id, job.task, job.queue, job.tenant, job.priority, max(job.attempt, 1), job.max_attempts, job.crashes,
        job.token + 1, job.run_at, job.created_at, None, None, job.args, job.unique_key, None, True, None, worker=new_id(),
    )  # fmt: skip
