"""Ten schedulers on one store with killed leaders: each fire happens once.

``python -m tests.faults.schedulers --store postgres --schedulers 10 --seconds 180``. Afterwards the run looks for every second
of the window in the stored fires, and for the effect of each fire's job in an external file.
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
from tests.faults.kit import Harness, Worker, clock, figures, own_harness, pause, until
from tests.faults.tasks import FIRES

from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.job import JobRow
from tidemill.domain.schedule_rules import All, Cron, Every, Misfire, Overlap, Trigger
from tidemill.domain.schedules import Fired
from tidemill.engine.leadership import NAME
from tidemill.errors import StoreError

SECOND = timedelta(seconds=1)
STALLED = 20.0
"""Seconds without a fire that a dead leader may cause; the schedules then catch up on all of them."""
_OPTIONS = ("--processes", "1", "--concurrency", "20", "--threads", "1", "--children", "0")
_RUN = re.compile(r"misfire: (?:the fire of (\S+) was|(\d+) fires from (\S+) until (\S+) were) skipped")


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
    """The record of a fire, written by a handler."""

    key: str
    fire_at: datetime
    job: UUID
    token: int


def run(harness: Harness, seed: int, *, schedulers: int, seconds: float, rest: float = 6.0) -> Verdict:
    """Fire for this long, while leaders are killed about every ``rest`` seconds."""
    random = Random(seed)
    crew = [harness.worker(*_OPTIONS) for _ in range(schedulers)]
    for worker in crew:
        worker.ready(seconds=240)
    made = [_declare(harness, plan) for plan in PLANS]
    culprits: set[int] = set()
    killed: Counter[str] = Counter()
    ends = clock.monotonic() + seconds
    while (left := ends - clock.monotonic()) > 0:
        pause(min(left, random.uniform(0.2, 2 * rest)))
        if clock.monotonic() < ends:
            leader = _leader(harness, crew)
            number = random.randrange(len(crew)) if leader is None else leader
            culprits |= crew[number].kill()
            crew[number] = harness.worker(*_OPTIONS)
            killed["follower" if leader is None else "leader"] += 1
    until(
        lambda: all(_up_to_date(harness, schedule) for schedule in made), "every schedule has caught up", 120
    )
    stopped_at = [_stop(harness, schedule) for schedule in made]
    harness.drain()
    codes = [worker.ready(seconds=240).stop() for worker in crew]
    fires = {plan.key: _fires(harness, schedule) for plan, schedule in zip(PLANS, made, strict=True)}
    harness.ledger.accept(
        [fire.job_id for several in fires.values() for fire in several if fire.job_id is not None]
    )
    verdict = judge(harness, culprits=culprits, releases=True, crash_loops=True)
    verdict.expect(set(codes) == {0}, "a worker exits with 0 on SIGTERM", codes)
    effects = _effects(harness)
    for plan, schedule, until_at in zip(PLANS, made, stopped_at, strict=True):
        since_at, own = schedule.row.since_at, fires[plan.key]
        assert since_at is not None
        check_each_second(verdict, plan, own, since_at, until_at)
        jobs = harness.jobs([fire.job_id for fire in own if fire.job_id is not None])
        check_each_fire(verdict, plan, own, jobs, effects.pop(plan.key, []))
    verdict.expect(not effects, "only declared schedules fired", sorted(effects))
    verdict.facts |= {
        "schedulers": schedulers,
        "killed": dict(killed),
        "fires": {key: len(several) for key, several in fires.items()},
        "late_by": figures([late for several in fires.values() for late in _lateness(several)]),
    }
    return verdict


def _declare(harness: Harness, plan: Plan) -> Schedule:
    return harness.fault_app.app.schedules.add(
        "tick",
        plan.trigger,
        plan.key,
        args={"key": plan.key},
        timezone=plan.timezone,
        misfire=plan.misfire,
        overlap=plan.overlap,
    )


def _leader(harness: Harness, crew: Sequence[Worker]) -> int | None:
    """Return the index of the leader; None if every worker does the duties, or none at the moment."""
    try:
        holder = next((lease.holder for lease in harness.store.leases() if lease.name == NAME), None)
    except StoreError:
        return None
    words = f"worker {holder} runs the duties"
    return next((number for number, worker in enumerate(crew) if words in worker.log), None)


def _up_to_date(harness: Harness, made: Schedule) -> bool:
    try:
        last = harness.fault_app.app.schedules.get(made.id).last_fire_at
    except StoreError:
        return False
    return last is not None and clock.now() - last < 5 * SECOND


def _stop(harness: Harness, made: Schedule) -> datetime:
    """Pause a schedule; return the time up to which it had to fire."""
    asked_at = clock.now()

    def paused() -> bool:
        try:
            harness.fault_app.app.schedules.pause(made.id)
        except StoreError:
            return False
        return True

    until(paused, "the schedule is paused", 60)
    return asked_at


def _fires(harness: Harness, made: Schedule) -> list[Fired]:
    """Return all fires of a schedule, in order."""
    fires: list[Fired] = []
    before: datetime | None = None
    while page := harness.store.fires(made.id, tenant=made.tenant, limit=500, before=before):
        fires += page
        before = page[-1].fire_at
    return fires[::-1]


def _effects(harness: Harness) -> dict[str, list[Effect]]:
    effects: dict[str, list[Effect]] = defaultdict(list)
    place = harness.ledger.path.with_name(FIRES)
    for line in place.read_text().splitlines() if place.exists() else []:
        key, fire_at, job, token = line.split()
        effects[key].append(
            Effect(key, datetime.fromisoformat(fire_at).astimezone(UTC), UUID(job), int(token))
        )
    return effects


def check_each_second(
    verdict: Verdict,
    plan: Plan,
    fires: Sequence[Fired],
    since_at: datetime,
    until_at: datetime,
    *,
    stepped: bool = False,
) -> None:
    """Check that every instant of the window has one row, or that a row reports it as skipped.

    Where the clock was ``stepped``, a schedule may pass an instant more than once: rows then record more skipped fires than
    are missing, and each missing one must lie within the range of such a row.
    """
    at = [fire.fire_at for fire in fires]
    verdict.expect(len(set(at)) == len(at), "S1 a fire is recorded once", plan.key)
    verdict.expect(
        all(instant > since_at for instant in at), "S2 no schedule fires before it is declared", plan.key
    )
    if not at:
        verdict.expect(False, "S3 a schedule fires", plan.key)
        return
    behind = (until_at - at[-1]).total_seconds()
    verdict.expect(behind < STALLED, "S3 it fires until the end", (plan.key, behind))
    expected = _instants(plan.step, since_at, at[-1])
    strange = sorted(set(at) - set(expected))
    verdict.expect(not strange, "S4 it fires only at its own times", (plan.key, strange[:5]))
    reported, ranges = 0, list[tuple[datetime, datetime]]()
    for fire in fires:
        if match := _RUN.match(fire.reason or ""):
            # One of the skipped fires has this row.
            reported += int(match[2] or 1) - 1
            ranges.append(
                (datetime.fromisoformat(match[3] or match[1]), datetime.fromisoformat(match[4] or match[1]))
            )
    missing = sorted(set(expected) - set(at))
    unexplained = [
        instant for instant in missing if not any(first <= instant <= last for first, last in ranges)
    ]
    verdict.expect(
        not unexplained and (stepped or len(missing) == reported),
        "S5 an instant without a row was skipped by the misfire policy",
        (plan.key, reported, len(missing), unexplained[:5] or missing[:5]),
    )
    if isinstance(plan.misfire, All):
        verdict.expect(not missing, "S6 misfire 'all' makes every fire", (plan.key, missing[:5]))


def _instants(step: timedelta, after: datetime, until_at: datetime) -> list[datetime]:
    """Return every step on the grid of whole minutes, after `after` and up to `until_at`."""
    at = after.replace(second=0, microsecond=0)
    instants = []
    while at <= until_at:
        if at > after:
            instants.append(at)
        at += step
    return instants


def check_each_fire(
    verdict: Verdict,
    plan: Plan,
    fires: Sequence[Fired],
    jobs: Mapping[UUID, JobRow],
    effects: Sequence[Effect],
) -> None:
    """Check that each fire has one job, its job had its effect, and each effect has a fire.

    A second line is the same job's next execution, after its worker was killed between the effect and the end of the job.
    """
    by_fire: dict[datetime, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_fire[effect.fire_at].append(effect)
    twice = 0
    for fire in fires:
        own = by_fire.pop(fire.fire_at, [])
        if fire.job_id is None:
            verdict.expect(bool(fire.reason), "S7 a skipped fire has a reason", fire)
            verdict.expect(not own, "S7 a skipped fire has no effect", own)
            continue
        job = jobs.get(fire.job_id)
        if job is None:
            verdict.expect(False, "S8 a fire's job exists", fire)
            continue
        verdict.expect(
            (job.details.schedule_id, job.details.fire_at) == (fire.schedule_id, fire.fire_at),
            "S8 a job refers to its fire",
            (fire, job.details),
        )
        verdict.expect(bool(own), "S9 a fire has an effect", fire)
        verdict.expect(
            {effect.job for effect in own} <= {job.id}, "S9 a fire's effects come from one job", own
        )
        verdict.expect(
            len(own) <= 1 + job.crashes, "S9 a fire has one effect, unless its worker was killed", (own, job)
        )
        twice += len(own) > 1
    verdict.expect(not by_fire, "S9 every effect has a fire", (plan.key, list(by_fire)[:5]))
    verdict.facts[f"effects_{plan.key}"] = len(effects)
    verdict.facts["repeated_after_a_kill"] = int(str(verdict.facts.get("repeated_after_a_kill", 0))) + twice


def _lateness(fires: Sequence[Fired]) -> list[float]:
    return [(fire.created_at - fire.fire_at).total_seconds() for fire in fires if fire.created_at is not None]


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.schedulers")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--schedulers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-logs", metavar="FILE", help="write the workers' logs to this file")
    given = parser.parse_args()
    began = clock.monotonic()
    with own_harness(given.store) as harness:
        try:
            verdict = run(harness, given.seed, schedulers=given.schedulers, seconds=given.seconds)
        finally:
            if given.keep_logs:
                with open(given.keep_logs, "w") as file:  # noqa: PTH123
                    file.writelines(f"--- {worker.pid}\n{worker.log}" for worker in harness.workers)
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
