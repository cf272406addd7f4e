"""A handler that holds the GIL far longer than a lease lasts, and still runs once.

``python -m tests.faults.gil --store sqlite --cycles 2``: each cycle holds the lock for 60 s, twice the default lease, first in a
thread, then on the event loop.
"""

from __future__ import annotations

from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Harness, clock
from tests.faults.ledger import BEGIN, END

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.engine.worker_settings import read_settings


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run with the default settings, for a minute."""
    return hold(harness, cycles, seconds=60.0, settings={})


def hold(harness: Harness, cycles: int, *, seconds: float, settings: dict[str, object]) -> Verdict:
    """Start two workers; one holds the GIL, and the other must not take its job."""
    expiry = read_settings(settings).expiry.total_seconds()
    assert seconds >= 1.5 * expiry, "hold the lock for at least 1.5 leases; less proves nothing"
    workers = [harness.supervised(1, **settings) for _ in range(2)]
    for worker in workers:
        worker.ready()
    verdict, held = Verdict(), []
    for cycle in range(cycles):
        began = clock.monotonic()
        (id,) = harness.enqueue(("hog", "hog_on_loop")[cycle % 2], [{"seconds": seconds}])
        harness.drain(seconds + 60)
        job = harness.jobs([id])[id]
        verdict.expect(job.state is JobState.COMPLETED, "the job completes", job)
        lines = harness.ledger.of(BEGIN, [id]), harness.ledger.of(END, [id])
        verdict.expect([len(kind) for kind in lines] == [1, 1], "the job ran once", lines)
        verdict.expect((job.attempt, job.crashes, job.token) == (1, 0, 1), "the job was claimed once", job)
        verdict.expect(
            len(harness.store.executions([id], tenant=ALL_TENANTS)) == 1, "the job has one execution", job
        )
        # A lock that was released early would prove nothing.
        verdict.expect(
            int(job.result or 0) >= seconds * 0.95, "the lock was held for the whole time", job.result
        )
        held.append(
            {
                "ran": round(lines[1][0].at - lines[0][0].at, 1),
                "lock_held": int(job.result or 0),
                "all": round(clock.monotonic() - began, 1),
            }
        )
    codes = [worker.stop() for worker in workers]
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    verdict.expect(not any("lost its lease" in worker.log for worker in workers), "no lease was lost", "")
    verdict.facts |= {"held": held, "wanted": seconds, "lease": expiry}
    return verdict


if __name__ == "__main__":
    main("gil", run, cycles=2)
