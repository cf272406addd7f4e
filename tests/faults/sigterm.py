"""Stops under load: a worker is told to stop again and again. It exits with 0 within its grace and five seconds, leaves nothing
held, and charges no job for it. ``python -m tests.faults.sigterm --store sqlite --cycles 20``
"""

from __future__ import annotations

from random import Random

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Ground, Producer, clock, figures, pause

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import HELD

GRACE = 1.0
MARGIN = 5.0


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """So many workers, one after the other."""
    random = Random(seed)
    verdict, took, handed_back = Verdict(), [], 0
    with Producer(ground, random, longest=2.0):
        for _ in range(cycles):
            worker = ground.worker("--processes", "2", "--grace", str(GRACE)).ready(2)
            pause(random.uniform(0.0, 2.0))
            at = clock.monotonic()
            code = worker.stop()
            took.append(clock.monotonic() - at)
            verdict.expect(code == 0, "a worker that is told to stop exits with 0", (code, worker.log[-500:]))
            held = ground.store.jobs(JobFilter(ALL_TENANTS, states=HELD)).items
            verdict.expect(not held, "nothing is left held", held[:3])
            handed_back += worker.log.count("are asked to stop")
    last = ground.worker("--processes", "2").ready(2)
    ground.drain()
    last.stop()
    verdict.expect(max(took) <= GRACE + MARGIN, f"it has ended within {GRACE + MARGIN:g} s", figures(took))
    end = judge(ground, releases=True)
    burnt = [job.id for job in ground.jobs(ground.ledger.accepted()).values() if job.attempt != 1]
    end.expect(not burnt, "no attempt is burnt", burnt[:5])
    end.violations[:0] = verdict.violations
    end.facts |= {"exit_after": figures(took), "grace": GRACE, "runners_that_had_to_ask": handed_back}
    return end


if __name__ == "__main__":
    main("sigterm", run, cycles=20)
