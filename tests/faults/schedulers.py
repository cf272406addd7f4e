"""Ten schedulers on one store, schedules of every second, and leaders that are killed: each fire happens once.

``python -m tests.faults.schedulers --store postgres --schedulers 10 --seconds 180``. Afterwards every second of the window is
looked for in the stored fires, and for each of them the effect of its job in a file that the store knows nothing of.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import NamedTuple
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.kit import Ground, Worker, clock, figures, own_ground, pause, until
from tests.faults.tasks import FIRES

from tidemill.client.scheduled import Schedule
from tidemill.domain.job import Job
from tidemill.domain.schedule import All, Cron, Every, Misfire, Overlap, Trigger
from tidemill.domain.timetable import Fired
from tidemill.engine.lead import NAME
from tidemill.errors import StoreError

SECOND = timedelta(seconds=1)
STALLED = 20.0
"""Seconds without a fire that a dead leader may cost; all of them are made up for."""
_OPTIONS = ("--processes", "1", "--concurrency", "20", "--threads", "1", "--children", "0")
_RUN = re.compile(r"misfire: (?:the fire|(\d+) fires)")


class Plan(NamedTuple):
    """One schedule of the run."""

    key: str
    trigger: Trigger
    step: timedelta
    misfire: Misfire
    overlap: Overlap
    timezone: str = "UTC"


PLANS = (
    Plan("skips", Every(SECOND), SECOND, "skip", "allow"),
    Plan("once", Cron("* * * * * *"), SECOND, "once", "allow", "Europe/Berlin"),
    Plan("all", Every(SECOND), SECOND, All(limit=1000), "allow"),
    Plan("alone", Cron("* * * * * *"), SECOND, "once", "skip", "America/Havana"),
    Plan("thirds", Cron("*/3 * * * * *"), 3 * SECOND, All(limit=1000), "allow"),
)


class Effect(NamedTuple):
    """What a handler wrote down about a fire."""

    key: str
    fire_at: datetime
    job: UUID
    token: int


def run(ground: Ground, seed: int, *, schedulers: int, seconds: float, rest: float = 6.0) -> Verdict:
    """Let them fire for so long, while leaders die about every ``rest`` seconds."""
    random = Random(seed)
    crew = [ground.worker(*_OPTIONS) for _ in range(schedulers)]
    for worker in crew:
        worker.ready(seconds=240)
    made = [_declare(ground, plan) for plan in PLANS]
    culprits: set[int] = set()
    killed: Counter[str] = Counter()
    ends = clock.monotonic() + seconds
    while (left := ends - clock.monotonic()) > 0:
        pause(min(left, random.uniform(0.2, 2 * rest)))
        if clock.monotonic() < ends:
            leader = _leader(ground, crew)
            number = random.randrange(len(crew)) if leader is None else leader
            culprits |= crew[number].kill()
            crew[number] = ground.worker(*_OPTIONS)
            killed["anybody" if leader is None else "leader"] += 1
    until(lambda: all(_up_to_date(ground, each) for each in made), "everybody has caught up", 120)
    stopped_at = [_stop(ground, each) for each in made]
    ground.drain()
    codes = [worker.ready(seconds=240).stop() for worker in crew]
    fires = {plan.key: _fires(ground, each) for plan, each in zip(PLANS, made, strict=True)}
    ground.ledger.accept(
        [fire.job_id for several in fires.values() for fire in several if fire.job_id is not None]
    )
    verdict = judge(ground, culprits=culprits, releases=True, crash_loops=True)
    verdict.expect(set(codes) == {0}, "a worker that is told to stop exits with 0", codes)
    effects = _effects(ground)
    for plan, each, until_at in zip(PLANS, made, stopped_at, strict=True):
        since_at, own = each.facts.since_at, fires[plan.key]
        assert since_at is not None
        each_second_once(verdict, plan, own, since_at, until_at)
        jobs = ground.jobs([fire.job_id for fire in own if fire.job_id is not None])
        each_fire_one_effect(verdict, plan, own, jobs, effects.pop(plan.key, []))
    verdict.expect(not effects, "nothing fired that was not declared", sorted(effects))
    verdict.facts |= {
        "schedulers": schedulers,
        "killed": dict(killed),
        "fires": {key: len(several) for key, several in fires.items()},
        "late_by": figures([late for several in fires.values() for late in _lateness(several)]),
    }
    return verdict


def _declare(ground: Ground, plan: Plan) -> Schedule:
    return ground.mill.app.schedules.add(
        "tick",
        plan.trigger,
        plan.key,
        args={"key": plan.key},
        timezone=plan.timezone,
        misfire=plan.misfire,
        overlap=plan.overlap,
    )


def _leader(ground: Ground, crew: Sequence[Worker]) -> int | None:
    """Which worker does the duties; None where everybody does them, or nobody just now."""
    try:
        holder = next((lease.holder for lease in ground.store.leases() if lease.name == NAME), None)
    except StoreError:
        return None
    words = f"worker {holder} does the duties"
    return next((number for number, worker in enumerate(crew) if words in worker.log), None)


def _up_to_date(ground: Ground, made: Schedule) -> bool:
    try:
        last = ground.mill.app.schedules.get(made.id).last_fire_at
    except StoreError:
        return False
    return last is not None and clock.now() - last < 5 * SECOND


def _stop(ground: Ground, made: Schedule) -> datetime:
    """Pause a schedule; up to when it was told to fire."""
    asked_at = clock.now()

    def paused() -> bool:
        try:
            ground.mill.app.schedules.pause(made.id)
        except StoreError:
            return False
        return True

    until(paused, "the schedule is paused", 60)
    return asked_at


def _fires(ground: Ground, made: Schedule) -> list[Fired]:
    """All of a schedule's fires, in order."""
    found: list[Fired] = []
    before: datetime | None = None
    while page := ground.store.fires(made.id, tenant=made.tenant, limit=500, before=before):
        found += page
        before = page[-1].fire_at
    return found[::-1]


def _effects(ground: Ground) -> dict[str, list[Effect]]:
    found: dict[str, list[Effect]] = defaultdict(list)
    place = ground.ledger.path.with_name(FIRES)
    for line in place.read_text().splitlines() if place.exists() else []:
        key, fire_at, job, token = line.split()
        found[key].append(Effect(key, datetime.fromisoformat(fire_at).astimezone(UTC), UUID(job), int(token)))
    return found


def each_second_once(
    verdict: Verdict, plan: Plan, fires: Sequence[Fired], since_at: datetime, until_at: datetime
) -> None:
    """Every instant of the window has one row, or is one of those that a row says were skipped."""
    at = [fire.fire_at for fire in fires]
    verdict.expect(len(set(at)) == len(at), "S1 a fire is written down once", plan.key)
    verdict.expect(all(each > since_at for each in at), "S2 nothing fires before it is declared", plan.key)
    if not at:
        verdict.expect(False, "S3 a schedule fires", plan.key)
        return
    behind = (until_at - at[-1]).total_seconds()
    verdict.expect(behind < STALLED, "S3 it fires to the end", (plan.key, behind))
    expected = _instants(plan.step, since_at, at[-1])
    strange = sorted(set(at) - set(expected))
    verdict.expect(not strange, "S4 it fires at its own times only", (plan.key, strange[:5]))
    told = 0
    for fire in fires:
        if found := _RUN.match(fire.reason or ""):
            told += int(found[1] or 1) - 1  # one of them has this row
    missing = sorted(set(expected) - set(at))
    verdict.expect(
        len(missing) == told, "S5 what has no row was skipped by the rule", (plan.key, told, missing[:5])
    )
    if isinstance(plan.misfire, All):
        verdict.expect(not missing, "S6 whoever asks for all gets all", (plan.key, missing[:5]))


def _instants(step: timedelta, after: datetime, until_at: datetime) -> list[datetime]:
    """Every step on the grid of whole minutes, after the one and not after the other."""
    at = after.replace(second=0, microsecond=0)
    found = []
    while at <= until_at:
        if at > after:
            found.append(at)
        at += step
    return found


def each_fire_one_effect(
    verdict: Verdict,
    plan: Plan,
    fires: Sequence[Fired],
    jobs: Mapping[UUID, Job],
    effects: Sequence[Effect],
) -> None:
    """A fire has one job, its job had its effect, and no effect is without a fire.

    A second line is the same job's next execution, after its worker was killed between the effect and the end of the job.
    """
    by_fire: dict[datetime, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_fire[effect.fire_at].append(effect)
    twice = 0
    for fire in fires:
        own = by_fire.pop(fire.fire_at, [])
        if fire.job_id is None:
            verdict.expect(bool(fire.reason), "S7 a skipped fire says why", fire)
            verdict.expect(not own, "S7 a skipped fire has no effect", own)
            continue
        job = jobs.get(fire.job_id)
        if job is None:
            verdict.expect(False, "S8 a fire's job exists", fire)
            continue
        verdict.expect(
            (job.details.schedule_id, job.details.fire_at) == (fire.schedule_id, fire.fire_at),
            "S8 a job remembers its fire",
            (fire, job.details),
        )
        verdict.expect(bool(own), "S9 a fire has its effect", fire)
        verdict.expect({each.job for each in own} <= {job.id}, "S9 by one job", own)
        verdict.expect(len(own) <= 1 + job.crashes, "S9 and once, unless its worker was killed", (own, job))
        twice += len(own) > 1
    verdict.expect(not by_fire, "S9 no effect is without a fire", (plan.key, list(by_fire)[:5]))
    verdict.facts[f"effects_{plan.key}"] = len(effects)
    verdict.facts["repeated_after_a_kill"] = int(str(verdict.facts.get("repeated_after_a_kill", 0))) + twice


def _lateness(fires: Sequence[Fired]) -> list[float]:
    return [(fire.created_at - fire.fire_at).total_seconds() for fire in fires if fire.created_at is not None]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.schedulers")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--schedulers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-logs", metavar="FILE", help="write the workers' logs there")
    given = parser.parse_args()
    began = clock.monotonic()
    with own_ground(given.store) as ground:
        try:
            verdict = run(ground, given.seed, schedulers=given.schedulers, seconds=given.seconds)
        finally:
            if given.keep_logs:
                with open(given.keep_logs, "w") as file:  # noqa: PTH123
                    file.writelines(f"--- {worker.pid}\n{worker.log}" for worker in ground.workers)
    kept = not verdict.violations
    words = "every promise kept" if kept else f"{len(verdict.violations)} violations"
    print(
        f"schedulers on {given.store}, {given.schedulers} of them for {given.seconds:g} s, seed {given.seed}: {words}"
    )
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    facts = {
        "run": "schedulers",
        "store": given.store,
        "seed": given.seed,
        "seconds": round(clock.monotonic() - began, 1),
    }
    print(json.dumps(facts | {"kept": kept} | verdict.facts, default=str))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
