"""Everything a verdict over a chaos run is based on, gathered once all is over. Nothing is judged here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from tests.faults.crowd import WHO, Cancelled, Operator, unwanted
from tests.faults.kit import ROOT, clock
from tests.faults.ledger import Line
from tests.faults.sampler import Seen
from tests.faults.schedulers import Effect, Plan
from tests.faults.stage import Hurt, Stage
from tests.faults.tasks import FIRES

from tidemill.client.scheduled import Schedule
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import Execution, Job
from tidemill.domain.timetable import Fired


@dataclass
class Timetable:
    """One schedule: what it was to do, between which instants, and what it did."""

    plan: Plan
    since_at: datetime
    until_at: datetime
    fires: list[Fired]
    effects: list[Effect]


@dataclass
class Audited:
    """What the audit says."""

    sound: bool = True  #: by ``tidemill audit verify``
    words: str = ""
    entries: int = 0
    own: Counter[str] = field(default_factory=Counter)  #: acts of the operator, by their names
    retried: Counter[UUID] = field(default_factory=Counter)


@dataclass
class Evidence:
    """The ledger, the store and the audit, side by side."""

    accepted: list[UUID] = field(default_factory=list)
    unwanted: list[UUID] = field(default_factory=list)
    jobs: dict[UUID, Job] = field(default_factory=dict)
    executions: dict[UUID, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    lines: list[Line] = field(default_factory=list)
    pids: dict[UUID, int] = field(default_factory=dict)  #: of the runner behind each worker's id
    hurt: Hurt = field(default_factory=Hurt)
    seen: Seen = field(default_factory=Seen)
    timetables: list[Timetable] = field(default_factory=list)
    audit: Audited = field(default_factory=Audited)
    cancelled: dict[UUID, Cancelled] = field(default_factory=dict)
    meddled: set[UUID] = field(default_factory=set)
    acts: Counter[str] = field(default_factory=Counter)
    unsure: Counter[str] = field(default_factory=Counter)
    epoch_at: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    """What time it was when the monotonic clock read zero."""

    def __post_init__(self) -> None:
        self.by_job: dict[UUID, list[Line]] = defaultdict(list)
        self.by_run: dict[tuple[UUID, int], list[Line]] = defaultdict(list)
        for line in self.lines:
            self.by_job[line.job].append(line)
            self.by_run[line.run].append(line)

    def at(self, line: Line) -> datetime:
        """When a line was written, by the clock on the wall."""
        return self.epoch_at + timedelta(seconds=line.at)


def epoch_at() -> datetime:
    """What time it was when the monotonic clock read zero."""
    return clock.now() - timedelta(seconds=clock.monotonic())


def gather(
    stage: Stage, operator: Operator, seen: Seen, timetables: list[tuple[Plan, Schedule, datetime]]
) -> Evidence:
    """All of it."""
    store = stage.works.app.store
    jobs: dict[UUID, Job] = {}
    after: str | None = None
    while True:
        page = store.jobs(JobFilter(ALL_TENANTS), sort=Sort.OLDEST, limit=1000, after=after)
        jobs |= {job.id: job for job in page.items}
        if (after := page.next) is None:
            break
    ids = list(jobs)
    executions: dict[UUID, list[Execution]] = defaultdict(list)
    for start in range(0, len(ids), 500):
        for execution in store.executions(ids[start : start + 500], tenant=ALL_TENANTS):
            executions[execution.job_id].append(execution)
    for several in executions.values():
        several.sort(key=lambda one: one.number)
    effects = _effects(stage)
    return Evidence(
        accepted=stage.ledger.accepted(),
        unwanted=unwanted(stage.folder),
        jobs=jobs,
        executions=executions,
        lines=stage.ledger.lines(),
        pids={worker.id: worker.pid for worker in store.workers()},
        hurt=stage.hurt,
        seen=seen,
        timetables=[_timetable(stage, *each, effects.pop(each[0].key, [])) for each in timetables],
        audit=_audit(stage),
        cancelled=operator.cancelled,
        meddled=operator.meddled,
        acts=operator.acts,
        unsure=operator.unsure,
        epoch_at=epoch_at(),
    )


def _timetable(
    stage: Stage, plan: Plan, made: Schedule, until_at: datetime, effects: list[Effect]
) -> Timetable:
    since_at = made.facts.since_at
    assert since_at is not None
    fires: list[Fired] = []
    before: datetime | None = None
    while page := stage.works.app.store.fires(made.id, tenant=made.tenant, limit=500, before=before):
        fires += page
        before = page[-1].fire_at
    return Timetable(plan, since_at, until_at, fires[::-1], effects)


def _effects(stage: Stage) -> dict[str, list[Effect]]:
    found: dict[str, list[Effect]] = defaultdict(list)
    place = stage.ledger.path.with_name(FIRES)
    for line in place.read_text().splitlines() if place.exists() else []:
        key, fire_at, job, token = line.split()
        found[key].append(Effect(key, datetime.fromisoformat(fire_at).astimezone(UTC), UUID(job), int(token)))
    return found


def _audit(stage: Stage) -> Audited:
    command = [sys.executable, "-m", "tidemill", "audit", "verify", "--json", "--store", stage.url]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    said = _json(done.stdout)
    found = Audited(
        done.returncode == 0 and said.get("ok") is True, (done.stdout + done.stderr).strip()[-400:]
    )
    after = 0
    while page := stage.works.app.store.audit(tenant=ALL_TENANTS, after=after, limit=1000):
        after = page[-1].number
        found.entries += len(page)
        for record in page:
            if record.entry.who == WHO:
                found.own[record.entry.action] += 1
            if record.entry.action == "job.retried":
                found.retried[UUID(record.entry.subject.removeprefix("job:"))] += 1
    return found


def _json(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def runs(evidence: Evidence, id: UUID) -> Sequence[tuple[int, list[Line]]]:
    """A job's executions as the ledger knows them: each token with its lines, in order."""
    tokens = sorted({line.token for line in evidence.by_job[id]})
    return [(token, evidence.by_run[id, token]) for token in tokens]
