"""One chaos run, from the start of the workers to the verdict.

Faults come first, then a period without faults, then the invariant checks. ``chaos`` has the command line.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from functools import partial
from random import Random
from typing import Any

from tests.faults.cluster import Cluster
from tests.faults.evidence import gather
from tests.faults.flow_invariants import FLOW_INVARIANTS, gather_flows, judge_flows
from tests.faults.flow_load import FlowLoad
from tests.faults.invariants import Finding
from tests.faults.invariants_more import judge
from tests.faults.kit import OPEN, Stuck, clock, pause, until
from tests.faults.nemesis import Nemesis
from tests.faults.sampler import Sampler
from tests.faults.schedulers import PLANS, SECOND, Plan
from tests.faults.traffic import Operator, Producers

from tidemill.client.schedules.schedule import Schedule
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.schedule_rules import All
from tidemill.errors import StoreError

PROGRESS = 5.0
PATIENCE = 600.0
"""Seconds in which every job must end after the last fault. It detects stuck jobs; the run also reports the time."""

_CATCH_UP = All(limit=100)
"""A step of an hour passes thousands of fires; the newest hundred are enough for the checks."""

_PLANS = [
    plan._replace(misfire=_CATCH_UP) if isinstance(plan.misfire, All) else plan
    for plan in PLANS
    if plan.key in ("skips", "all", "thirds")
]

NEEDED = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I11", "I12", "I13", "I14", "I15", "I16")
"""Invariants that every run must have checked at least once."""

Say = Callable[[str], None]


class Chaos:
    """One run on one cluster."""

    def __init__(
        self, cluster: Cluster, seed: int, say: Say, only: Sequence[str] = (), patience: float = PATIENCE
    ) -> None:
        self._cluster, self._say, self._patience = cluster, say, patience
        random = Random(seed)
        self._producing = cluster.open_chaos_app(cluster.producers_url)
        self._nemesis = Nemesis(cluster, Random(random.random()), only)
        self._producers = Producers(self._producing, cluster.producers_url, cluster.ledger, random)
        self._operator = Operator(cluster.chaos_app, cluster.ledger, random)
        self._flows = FlowLoad(self._producing, random)
        self._sampler = Sampler(cluster.url)
        self._pause = Random(random.random())
        self._began = clock.monotonic()
        self._stuck: list[str] = []
        self._over = threading.Event()
        self.facts: dict[str, Any] = {}

    def run(self, seconds: float) -> dict[str, Finding]:
        """Inject faults for this long, then let everything settle; return every finding."""
        try:
            for slot in self._cluster.slots:
                self._cluster.start(slot)
            for slot in self._cluster.slots:
                slot.current.ready()
            made = [(plan, self._declare(plan)) for plan in _PLANS]
            self._began = clock.monotonic()
            with self._sampler:
                with self._producers, self._operator, self._flows:
                    self._with_progress(lambda: self._strike(seconds))
                    self._operator.close()
                    self._flows.close()
                    self._nemesis.heal()
                healed = clock.monotonic()
                until_at = self._with_progress(lambda: self._settle([schedule for _, schedule in made]))
                settled = clock.monotonic() - healed
            self._cluster.stop_all()
        finally:
            self._producing.app.close()
        flows = gather_flows(self._cluster, self._flows)
        evidence = gather(
            self._cluster,
            self._operator,
            self._sampler.seen,
            [(*item, until_at) for item in made],
            apart=flows.jobs.keys(),
        )
        findings = judge(evidence) | judge_flows(flows)
        for name in (*NEEDED, *FLOW_INVARIANTS):
            if not findings[name].checked:
                findings[name] = Finding(0, [*findings[name].broken, "nothing was checked"])
        findings["L0"] = Finding(self._cluster.started, self._cluster.unexpected_exits)
        findings["L1"] = Finding(len(evidence.jobs), self._stuck)
        self.facts = {
            "accepted": len(set(evidence.accepted)),
            "jobs": len(evidence.jobs),
            "executions": sum(map(len, evidence.executions.values())),
            "states": _counted(job.state for job in evidence.jobs.values()),
            "execution_states": _counted(one.state for own in evidence.executions.values() for one in own),
            "run_twice": sum(len({line.token for line in lines}) > 1 for lines in evidence.by_job.values()),
            "flows": dict(self._flows.started),
            "flow_jobs": len(flows.jobs),
            "faults": dict(self._nemesis.dealt),
            "spared": dict(self._nemesis.spared),
            "wrong_clocks": self._cluster.skewed,
            "clock_steps": {f"{by:+g} s": count for by, count in self._nemesis.clock_steps.items()},
            "calls_without_answer": sum(self._producers.failed.values()),
            "acts": dict(self._operator.acts),
            "most_held": dict(self._sampler.seen.highest),
            "looks": self._sampler.seen.looks,
            "zombie_writes_refused": self._cluster.logs.count("were not written"),
            "disk_full_said": self._cluster.logs.count("is full; nothing was changed"),
            "ended_after_peace": round(settled, 1),
        }  # fmt: skip
        return findings

    def _declare(self, plan: Plan) -> Schedule:
        return self._cluster.chaos_app.app.schedules.add(
            "tick",
            plan.trigger,
            plan.key,
            args={"key": plan.key},
            timezone=plan.timezone,
            misfire=plan.misfire,
            overlap=plan.overlap,
        )

    # Faults --------------------------------------------------------------------------------------------------------------

    def _strike(self, seconds: float) -> None:
        ends = clock.monotonic() + seconds
        while clock.monotonic() < ends and not self._over.is_set():
            pause(self._pause.uniform(0.3, 1.5))
            self._nemesis.strike()

    def _with_progress(self, act: Callable[[], Any]) -> Any:
        """Run it on a thread, and report progress every few seconds."""
        with ThreadPoolExecutor(1, "faults-nemesis") as pool:
            done: Future[Any] = pool.submit(act)
            try:
                while not wait([done], PROGRESS).done:
                    self._say(self._progress())
            except BaseException:
                self._over.set()
                raise
            return done.result()

    def _progress(self) -> str:
        accepted, ended = sum(self._producers.asked.values()), self._sampler.seen.history
        dealt = ", ".join(f"{count} {name}" for name, count in sorted(self._nemesis.dealt.items()))
        seconds = clock.monotonic() - self._began
        return f"{self._cluster.store} {seconds:5.0f} s  {accepted:6,} accepted  {ended:6,} ended  {dealt or 'no fault yet'}"

    # Settling ------------------------------------------------------------------------------------------------------------

    def _settle(self, made: Sequence[Schedule]) -> datetime:
        """Wait until schedules have caught up, pause them, and wait for the last job; return the time of the pause."""
        self._try(self._operator.resume_all, "every queue is resumed", 60)
        self._flows.drain()
        self._wait(
            lambda: all(slot.current.readies() for slot in self._cluster.slots), "every worker is ready", 120
        )
        self._wait(
            lambda: all(self._up_to_date(schedule) for schedule in made), "schedules have caught up", 90
        )
        until_at = self._cluster.clock_control.now()
        for schedule in made:
            self._try(
                partial(self._cluster.chaos_app.app.schedules.pause, schedule.id), "a schedule is paused", 60
            )
        where = JobFilter(ALL_TENANTS, states=OPEN)
        count = self._cluster.chaos_app.app.store.count
        self._wait(lambda: not count(where), "every job has ended", self._patience)
        # One more sample.
        pause(1.0)
        return until_at

    def _up_to_date(self, made: Schedule) -> bool:
        last = self._cluster.chaos_app.app.schedules.get(made.id).last_fire_at
        return last is not None and self._cluster.clock_control.now() - last < 5 * SECOND

    def _try(self, act: Callable[[], object], what: str, seconds: float) -> None:
        self._wait(lambda: (act(), True)[1], what, seconds)

    def _wait(self, true: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for a condition; a timeout is a finding and does not end the run."""

        def poll() -> bool:
            self._cluster.refill()
            self._cluster.cancel_lock_waits()
            try:
                return true()
            except StoreError:
                return False

        try:
            until(poll, what, seconds)
        except Stuck as stuck:
            self._stuck.append(str(stuck))


def _counted(values: Iterable[object]) -> dict[str, int]:
    return dict(sorted(Counter(str(value) for value in values).items()))
