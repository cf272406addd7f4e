"""The evidence of a chaos run, collected after its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.faults.cluster import Cluster, FaultLog
from tests.faults.kit import ROOT, clock
from tests.faults.ledger import Line
from tests.faults.sampler import Observations
from tests.faults.schedulers import Effect, Plan
from tests.faults.stepping import Step, Timeline
from tests.faults.tasks import FIRES
from tests.faults.traffic import WHO, Cancelled, Operator, unwanted

from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.schedules import Fired


@dataclass
class Timetable:
    """One schedule: its plan, its time window, and its fires and effects."""

    plan: Plan
    since_at: datetime
    until_at: datetime
    fires: list[Fired]
    effects: list[Effect]


@dataclass
class Audited:
    """The audit."""

    sound: bool = True  #: result of ``tidemill audit verify``
    words: str = ""
    entries: int = 0
    own: Counter[str] = field(default_factory=Counter)  #: the operator's actions, by name
    retried: Counter[UUID] = field(default_factory=Counter)


@dataclass
class Evidence:
    """The ledger, the store and the audit."""

    accepted: list[UUID] = field(default_factory=list)
    unwanted: list[UUID] = field(default_factory=list)
    jobs: dict[UUID, JobRow] = field(default_factory=dict)
    executions: dict[UUID, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    lines: list[Line] = field(default_factory=list)
    pids: dict[UUID, int] = field(default_factory=dict)  #: of the runner behind each worker's id
    fault_log: FaultLog = field(default_factory=FaultLog)
    seen: Observations = field(default_factory=Observations)
    timetables: list[Timetable] = field(default_factory=list)
    audit: Audited = field(default_factory=Audited)
    cancelled: dict[UUID, Cancelled] = field(default_factory=dict)
    meddled: set[UUID] = field(default_factory=set)
    acts: Counter[str] = field(default_factory=Counter)
    unsure: Counter[str] = field(default_factory=Counter)
    epoch_at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    """The wall time at monotonic zero."""
    steps: list[Step] = field(default_factory=list)  #: of the store's clock

    def __post_init__(self) -> None:
        self.timeline = Timeline(self.epoch_at, self.steps)
        self.by_job: dict[UUID, list[Line]] = defaultdict(list)
        self.by_run: dict[tuple[UUID, int], list[Line]] = defaultdict(list)
        for line in self.lines:
            self.by_job[line.job].append(line)
            self.by_run[line.run].append(line)

    def at(self, line: Line) -> datetime:
        """Return when a line was written, by the store's clock.

        After a step back, use the fastest clock since the job was created: the job may have become due while the clock was ahead.
        """
        if not self.steps:
            return self.timeline.wall(line.at)
        created = min(self.timeline.readings(self.jobs[line.job].created_at))
        return self.timeline.latest_wall(created, line.at)


def epoch_at() -> datetime:
    """Return the wall time at monotonic zero."""
    return clock.now() - timedelta(seconds=clock.monotonic())


def gather(
    cluster: Cluster,
    operator: Operator,
    seen: Observations,
    timetables: list[tuple[Plan, Schedule, datetime]],
    apart: Collection[UUID] = (),
) -> Evidence:
    """Collect all evidence, except about jobs with checks of their own."""
    store = cluster.chaos_app.app.store
    jobs: dict[UUID, JobRow] = {}
    after: str | None = None
    while True:
        page = store.jobs(JobFilter(ALL_TENANTS), sort=Sort.OLDEST, limit=1000, after=after)
        jobs |= {job.id: job for job in page.items if job.id not in apart}
        if (after := page.next) is None:
            break
    ids = list(jobs)
    executions: dict[UUID, list[Execution]] = defaultdict(list)
    for start in range(0, len(ids), 500):
        for execution in store.executions(ids[start : start + 500], tenant=ALL_TENANTS):
            executions[execution.job_id].append(execution)
    for several in executions.values():
        several.sort(key=lambda one: one.number)
    seen.ended = {id: end for id, end in seen.ended.items() if id not in apart}
    effects = _effects(cluster)
    return Evidence(
        accepted=cluster.ledger.accepted(),
        unwanted=unwanted(cluster.folder),
        jobs=jobs,
        executions=executions,
        lines=cluster.ledger.lines(),
        pids=seen.pids | {worker.id: worker.pid for worker in store.workers()},
        fault_log=cluster.fault_log,
        seen=seen,
        timetables=[_timetable(cluster, *item, effects.pop(item[0].key, [])) for item in timetables],
        audit=_audit(cluster),
        cancelled=operator.cancelled,
        meddled=operator.meddled,
        acts=operator.acts,
        unsure=operator.unsure,
        epoch_at=epoch_at(),
        steps=cluster.clock_control.steps,
    )


def _timetable(
    cluster: Cluster, plan: Plan, made: Schedule, until_at: datetime, effects: list[Effect]
) -> Timetable:
    since_at = made.row.since_at
    assert since_at is not None
    fires: list[Fired] = []
    before: datetime | None = None
    while page := cluster.chaos_app.app.store.fires(made.id, tenant=made.tenant, limit=500, before=before):
        fires += page
        before = page[-1].fire_at
    return Timetable(plan, since_at, until_at, fires[::-1], effects)


def _effects(cluster: Cluster) -> dict[str, list[Effect]]:
    effects: dict[str, list[Effect]] = defaultdict(list)
    place = cluster.ledger.path.with_name(FIRES)
    for line in place.read_text().splitlines() if place.exists() else []:
        key, fire_at, job, token = line.split()
        effects[key].append(
            Effect(key, datetime.fromisoformat(fire_at).astimezone(UTC), UUID(job), int(token))
        )
    return effects


def _audit(cluster: Cluster) -> Audited:
    command = [sys.executable, "-m", "tidemill", "audit", "verify", "--json", "--store", cluster.url]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    report = _json(done.stdout)
    audited = Audited(
        done.returncode == 0 and report.get("ok") is True, (done.stdout + done.stderr).strip()[-400:]
    )
    after = 0
    while page := cluster.chaos_app.app.store.audit(tenant=ALL_TENANTS, after=after, limit=1000):
        after = page[-1].number
        audited.entries += len(page)
        for record in page:
            if record.entry.who == WHO:
                audited.own[record.entry.action] += 1
            if record.entry.action == "job.retried":
                audited.retried[UUID(record.entry.subject.removeprefix("job:"))] += 1
    return audited


def _json(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def runs(evidence: Evidence, id: UUID) -> Sequence[tuple[int, list[Line]]]:
    """Return a job's executions by the ledger: each token with its lines, in order."""
    tokens = sorted({line.token for line in evidence.by_job[id]})
    return [(token, evidence.by_run[id, token]) for token in tokens]
