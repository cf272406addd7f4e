"""Workers stopped by SIGTERM under load.

Each worker exits with 0 within its grace period plus five seconds, leaves no job held, and charges no job for the stop.
``python -m tests.faults.sigterm --store sqlite --cycles 20``
"""

from __future__ import annotations

from random import Random

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Producer, clock, figures, pause

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import HELD

GRACE = 1.0
MARGIN = 5.0


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Start and stop this many workers, one after the other."""
    random = Random(seed)
    verdict, took, handed_back = Verdict(), [], 0
    with Producer(harness, random, longest=2.0):
        for _ in range(cycles):
            worker = harness.worker("--processes", "2", "--grace", str(GRACE)).ready(2)
            pause(random.uniform(0.0, 2.0))
            at = clock.monotonic()
            code = worker.stop()
            took.append(clock.monotonic() - at)
            verdict.expect(code == 0, "a worker exits with 0 on SIGTERM", (code, worker.log[-500:]))
            held = harness.store.jobs(JobFilter(ALL_TENANTS, states=HELD)).items
            verdict.expect(not held, "no job is left held", held[:3])
            handed_back += worker.log.count("asking ")
    last = harness.worker("--processes", "2").ready(2)
    harness.drain()
    last.stop()
    verdict.expect(max(took) <= GRACE + MARGIN, f"it exits within {GRACE + MARGIN:g} s", figures(took))
    end = judge(harness, releases=True)
    charged = [job.id for job in harness.jobs(harness.ledger.accepted()).values() if job.attempt != 1]
    end.expect(not charged, "no attempt is used up", charged[:5])
    end.violations[:0] = verdict.violations
    end.facts |= {"exit_after": figures(took), "grace": GRACE, "runners_that_had_to_ask": handed_back}
    return end


if __name__ == "__main__":
    main("sigterm", run, cycles=20)
