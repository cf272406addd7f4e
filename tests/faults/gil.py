"""A handler that holds the interpreter's lock far longer than a lease lasts: it works, is not taken for dead, and runs once.

``python -m tests.faults.gil --store sqlite --cycles 2``: each cycle holds it for 60 s, twice the usual lease; in a thread, then
on the event loop.
"""

from __future__ import annotations

from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Ground, clock
from tests.faults.ledger import BEGIN, END

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.engine.settings import read_settings


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """The usual settings, and a minute."""
    return hold(ground, cycles, seconds=60.0, settings={})


def hold(ground: Ground, cycles: int, *, seconds: float, settings: dict[str, object]) -> Verdict:
    """Two workers; one of them is silent for so long, and the other must not touch what it has."""
    expiry = read_settings(settings).expiry.total_seconds()
    assert seconds >= 1.5 * expiry, "a silence shorter than the lease proves nothing"
    workers = [ground.supervised(1, **settings) for _ in range(2)]
    for worker in workers:
        worker.ready()
    verdict, held = Verdict(), []
    for cycle in range(cycles):
        began = clock.monotonic()
        (id,) = ground.enqueue(("hog", "hog_on_loop")[cycle % 2], [{"seconds": seconds}])
        ground.drain(seconds + 60)
        job = ground.jobs([id])[id]
        verdict.expect(job.state is JobState.COMPLETED, "it is completed", job)
        lines = ground.ledger.of(BEGIN, [id]), ground.ledger.of(END, [id])
        verdict.expect([len(kind) for kind in lines] == [1, 1], "it ran once", lines)
        verdict.expect((job.attempt, job.crashes, job.token) == (1, 0, 1), "it was claimed once", job)
        verdict.expect(
            len(ground.store.executions([id], tenant=ALL_TENANTS)) == 1, "it has one execution", job
        )
        # A lock that was let go of early would prove nothing.
        verdict.expect(int(job.result or 0) >= seconds * 0.95, "the lock was really held", job.result)
        held.append(
            {
                "ran": round(lines[1][0].at - lines[0][0].at, 1),
                "lock_held": int(job.result or 0),
                "all": round(clock.monotonic() - began, 1),
            }
        )
    codes = [worker.stop() for worker in workers]
    verdict.expect(codes == [0, 0], "a worker that is told to stop exits with 0", codes)
    verdict.expect(not any("lost its lease" in worker.log for worker in workers), "no lease was lost", "")
    verdict.facts |= {"held": held, "wanted": seconds, "lease": expiry}
    return verdict


if __name__ == "__main__":
    main("gil", run, cycles=2)
