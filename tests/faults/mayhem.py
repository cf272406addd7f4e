"""One chaos run from the first worker's start to the verdict: a bad time, then peace, then every invariant. How it is asked for and
shown is ``chaos``'s business.
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

from tests.faults.chaos_app import Works
from tests.faults.crowd import Operator, Producers
from tests.faults.evidence import gather
from tests.faults.invariants import Finding
from tests.faults.invariants_more import judge
from tests.faults.kit import OPEN, Stuck, clock, pause, until
from tests.faults.nemesis import Nemesis
from tests.faults.sampler import Sampler
from tests.faults.schedulers import PLANS, SECOND, Plan
from tests.faults.stage import Stage

from tidemill.client.scheduled import Schedule
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.errors import StoreError

PROGRESS = 5.0
PATIENCE = 600.0
"""Seconds in which all jobs must have ended once all is well: this finds what is stuck; how long it took is told as a figure."""

_CHOSEN = ("skips", "all", "thirds")

NEEDED = ("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I11", "I12", "I13", "I14", "I15", "I16")
"""What every run comes by; a verdict over nothing would be none."""

Say = Callable[[str], None]


class Chaos:
    """One run on one stage."""

    def __init__(self, stage: Stage, seed: int, say: Say, only: Sequence[str] = ()) -> None:
        self._stage, self._say = stage, say
        random = Random(seed)
        self._producing = Works(stage.producers_url)
        self._nemesis = Nemesis(stage, Random(random.random()), only)
        self._producers = Producers(self._producing, stage.producers_url, stage.ledger, random)
        self._operator = Operator(stage.works, stage.ledger, random)
        self._sampler = Sampler(stage.url)
        self._pause = Random(random.random())
        self._began = clock.monotonic()
        self._stuck: list[str] = []
        self._over = threading.Event()
        self.facts: dict[str, Any] = {}

    def run(self, seconds: float) -> dict[str, Finding]:
        """So long of it, then peace; every finding."""
        try:
            for seat in self._stage.seats:
                self._stage.start(seat)
            for seat in self._stage.seats:
                seat.who.ready()
            made = [(plan, self._declare(plan)) for plan in PLANS if plan.key in _CHOSEN]
            self._began = clock.monotonic()
            with self._sampler:
                with self._producers, self._operator:
                    self._meanwhile(lambda: self._strike(seconds))
                    self._operator.close()
                    self._nemesis.heal()
                healed = clock.monotonic()
                until_at = self._meanwhile(lambda: self._settle([each for _, each in made]))
                settled = clock.monotonic() - healed
            self._stage.stop_all()
        finally:
            self._producing.app.close()
        evidence = gather(
            self._stage, self._operator, self._sampler.seen, [(*each, until_at) for each in made]
        )
        findings = judge(evidence)
        for name in NEEDED:
            if not findings[name].looked_at:
                findings[name] = Finding(0, [*findings[name].broken, "nothing was looked at"])
        findings["L0"] = Finding(self._stage.started, self._stage.ended_by_themselves)
        findings["L1"] = Finding(len(evidence.jobs), self._stuck)
        self.facts = {
            "accepted": len(set(evidence.accepted)),
            "jobs": len(evidence.jobs),
            "executions": sum(map(len, evidence.executions.values())),
            "states": _counted(job.state for job in evidence.jobs.values()),
            "execution_states": _counted(one.state for own in evidence.executions.values() for one in own),
            "run_twice": sum(len({line.token for line in lines}) > 1 for lines in evidence.by_job.values()),
            "faults": dict(self._nemesis.dealt),
            "spared": dict(self._nemesis.spared),
            "wrong_clocks": self._stage.skewed,
            "calls_without_answer": sum(self._producers.failed.values()),
            "acts": dict(self._operator.acts),
            "most_held": dict(self._sampler.seen.highest),
            "looks": self._sampler.seen.looks,
            "zombie_writes_refused": self._stage.logs.count("was not written"),
            "disk_full_said": self._stage.logs.count("is full; nothing was changed"),
            "ended_after_peace": round(settled, 1),
        }  # fmt: skip
        return findings

    def _declare(self, plan: Plan) -> Schedule:
        return self._stage.works.app.schedules.add(
            "tick",
            plan.trigger,
            plan.key,
            args={"key": plan.key},
            timezone=plan.timezone,
            misfire=plan.misfire,
            overlap=plan.overlap,
        )

    # The bad time --------------------------------------------------------------------------------------------------------

    def _strike(self, seconds: float) -> None:
        ends = clock.monotonic() + seconds
        while clock.monotonic() < ends and not self._over.is_set():
            pause(self._pause.uniform(0.3, 1.5))
            self._nemesis.strike()

    def _meanwhile(self, act: Callable[[], Any]) -> Any:
        """Do it on a thread, and tell how things stand every few seconds."""
        with ThreadPoolExecutor(1, "faults-nemesis") as pool:
            done: Future[Any] = pool.submit(act)
            try:
                while not wait([done], PROGRESS).done:
                    self._say(self._standing())
            except BaseException:
                self._over.set()
                raise
            return done.result()

    def _standing(self) -> str:
        accepted, ended = sum(self._producers.asked.values()), self._sampler.seen.history
        dealt = ", ".join(f"{count} {name}" for name, count in sorted(self._nemesis.dealt.items()))
        seconds = clock.monotonic() - self._began
        return f"{self._stage.store} {seconds:5.0f} s  {accepted:6,} accepted  {ended:6,} ended  {dealt or 'no fault yet'}"

    # Peace ---------------------------------------------------------------------------------------------------------------

    def _settle(self, made: Sequence[Schedule]) -> datetime:
        """Wait until schedules have caught up, stop them, and wait for the last job; up to when they fired."""
        self._try(self._operator.resume_all, "pauses are ended", 60)
        self._wait(
            lambda: all(seat.who.readies() for seat in self._stage.seats), "every worker is ready", 120
        )
        self._wait(lambda: all(self._up_to_date(each) for each in made), "schedules have caught up", 90)
        until_at = clock.now()
        for each in made:
            self._try(partial(self._stage.works.app.schedules.pause, each.id), "a schedule is paused", 60)
        where = JobFilter(ALL_TENANTS, states=OPEN)
        count = self._stage.works.app.store.count
        self._wait(lambda: not count(where), "every job has ended", PATIENCE)
        pause(1.0)  # the last look
        return until_at

    def _up_to_date(self, made: Schedule) -> bool:
        last = self._stage.works.app.schedules.get(made.id).last_fire_at
        return last is not None and clock.now() - last < 5 * SECOND

    def _try(self, act: Callable[[], object], what: str, seconds: float) -> None:
        self._wait(lambda: (act(), True)[1], what, seconds)

    def _wait(self, true: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for it; that it did not come is a finding, and not the end of the run."""

        def asked() -> bool:
            self._stage.refill()
            try:
                return true()
            except StoreError:
                return False

        try:
            until(asked, what, seconds)
        except Stuck as stuck:
            self._stuck.append(str(stuck))


def _counted(values: Iterable[object]) -> dict[str, int]:
    return dict(sorted(Counter(str(value) for value in values).items()))
