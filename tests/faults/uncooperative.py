"""Isolated handlers that ignore every signal and exception, with a timeout of 2 s.

Each is killed, with everything it forked, within a second of its timeout.
``python -m tests.faults.uncooperative --store sqlite --cycles 20``
"""

from __future__ import annotations

from tests.engine.worker_kit import alive
from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Harness, figures
from tests.faults.ledger import BEGIN, Line
from tests.faults.tasks import DEFIANT_TIMEOUT

from tidemill.domain.states import JobState

BOUND = 1.0
_WAYS = ("sleep", "spin", "fork")


def run(harness: Harness, cycles: int, seed: int, bound: float = BOUND) -> Verdict:
    """Run this many of them, four at a time. A busy machine needs a larger bound."""
    worker = harness.worker("--processes", "1", "--children", "4").ready()
    jobs = [
        id
        for number in range(cycles)
        for id in harness.enqueue("defy", [{"how": _WAYS[number % len(_WAYS)]}])
    ]
    harness.drain(60 + 10 * cycles)
    stored = harness.jobs(jobs)
    began = {line.job: line for line in harness.ledger.of(BEGIN)}
    last: dict[object, Line] = {}
    for line in harness.ledger.lines():
        last[line.job] = max(last.get(line.job, line), line, key=lambda one: one.at)
    limit = DEFIANT_TIMEOUT.total_seconds()
    late = [last[id].at - began[id].at - limit for id in jobs]
    verdict = Verdict()
    for id, seconds in zip(jobs, late, strict=True):
        verdict.expect(stored[id].state is JobState.TIMED_OUT, "it times out", stored[id])
        verdict.expect(seconds <= bound, f"it is gone within {bound:g} s of its timeout", (id, seconds))
    left = {line.pid for line in harness.ledger.lines() if alive(line.pid)}
    verdict.expect(not left, "no process of the handlers is left", left)
    spans = []
    for id in jobs:
        job = stored[id]
        assert job.started_at is not None
        assert job.finished_at is not None
        spans.append((job.finished_at - job.started_at).total_seconds() - limit)
    verdict.expect(
        max(spans) <= bound, f"its end is written within {bound:g} s of its timeout", figures(spans)
    )
    code = worker.stop()
    verdict.expect(code == 0, "a worker exits with 0 on SIGTERM", code)
    verdict.facts |= {"last_sign_after_timeout": figures(late, 3), "end_after_timeout": figures(spans, 3)}
    return verdict


if __name__ == "__main__":
    main("uncooperative", run, cycles=20)
