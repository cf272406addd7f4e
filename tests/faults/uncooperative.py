"""Handlers in processes of their own that ignore every signal and every exception, with a timeout of 2 s: each is gone, with
whatever it forked, within a second of it. ``python -m tests.faults.uncooperative --store sqlite --cycles 20``
"""

from __future__ import annotations

from tests.engine.worker_kit import alive
from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Ground, figures
from tests.faults.ledger import BEGIN, Line
from tests.faults.tasks import DEFIANT_TIMEOUT

from tidemill.domain.states import JobState

BOUND = 1.0
_WAYS = ("sleep", "spin", "fork")


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """So many of them, four at a time."""
    worker = ground.worker("--processes", "1", "--children", "4").ready()
    jobs = [
        id for number in range(cycles) for id in ground.enqueue("defy", [{"how": _WAYS[number % len(_WAYS)]}])
    ]
    ground.drain(60 + 10 * cycles)
    stored = ground.jobs(jobs)
    began = {line.job: line for line in ground.ledger.of(BEGIN)}
    last: dict[object, Line] = {}
    for line in ground.ledger.lines():
        last[line.job] = max(last.get(line.job, line), line, key=lambda one: one.at)
    limit = DEFIANT_TIMEOUT.total_seconds()
    late = [last[id].at - began[id].at - limit for id in jobs]
    verdict = Verdict()
    for id, seconds in zip(jobs, late, strict=True):
        verdict.expect(stored[id].state is JobState.TIMED_OUT, "it is timed out", stored[id])
        verdict.expect(seconds <= BOUND, f"it is gone within {BOUND:g} s of its timeout", (id, seconds))
    left = {line.pid for line in ground.ledger.lines() if alive(line.pid)}
    verdict.expect(not left, "no process of theirs is left", left)
    spans = []
    for id in jobs:
        job = stored[id]
        assert job.started_at is not None
        assert job.finished_at is not None
        spans.append((job.finished_at - job.started_at).total_seconds() - limit)
    verdict.expect(
        max(spans) <= BOUND, f"its end is written within {BOUND:g} s of its timeout", figures(spans)
    )
    code = worker.stop()
    verdict.expect(code == 0, "a worker that is told to stop exits with 0", code)
    verdict.facts |= {"last_sign_after_timeout": figures(late, 3), "end_after_timeout": figures(spans, 3)}
    return verdict


if __name__ == "__main__":
    main("uncooperative", run, cycles=20)
