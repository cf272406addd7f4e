"""Calling what may fail: a media backup that is tried five times, and a partner's API that is asked as it wishes to be.

    python examples/patterns/retry_with_backoff.py [STORE]

An exception is tried again by the task's rule; ``PermanentError`` is not; ``Retry`` says when. A class may look at what went wrong.
"""

from __future__ import annotations

import itertools
import sys
from datetime import timedelta
from typing import Any

from tidemill import App, Execution, Exponential, Job, ManualClock, PermanentError, Retry, Task

calls: list[str] = []
answers = {"orders": [503, 429, 200], "gone": [404]}


app = App(
    sys.argv[1] if len(sys.argv) > 1 else "memory://", clock=ManualClock(), migrate=True, name="partners"
)


@app.task(retry=Exponential(max_attempts=5, wait=timedelta(seconds=30), jitter=0.0))
def back_up(folder: str, attempt_that_works: int = 3) -> str:
    """Copy a folder away; the first attempts find the disk full."""
    calls.append(f"back up {folder}")
    if calls.count(f"back up {folder}") < attempt_that_works:
        raise OSError("no space left on device")
    return f"{folder} is safe"


class CallPartner(Task[str, int]):
    """Ask a partner. What is not there is not asked for again; a busy partner says how long to wait."""

    def run(self, path: str) -> int:
        status = answers[path].pop(0)
        calls.append(f"{path} {status}")
        if status == 404:
            raise PermanentError(f"{path} is not there")
        if status == 429:
            raise Retry(timedelta(minutes=2), reason="the partner asked us to wait")
        if status >= 500:
            raise ConnectionError(f"{status} from {path}")
        return status

    def retry_delay(self, execution: Execution) -> timedelta | None:
        return timedelta(seconds=5 * 2**execution.attempt)


call_partner = app.task(CallPartner)


def main() -> None:
    """Three jobs, and the waits between their attempts."""
    with app, app.testing() as testing:
        jobs: list[Job[Any]] = [
            back_up.enqueue(folder="media"),
            call_partner.enqueue(path="orders"),
            call_partner.enqueue(path="gone"),
        ]
        testing.run_until_idle(timedelta(hours=1))
        for job in jobs:
            job.refresh()
            begun = [each.started_at for each in reversed(job.executions()) if each.started_at is not None]
            waits = [f"{(late - early).total_seconds():.0f} s" for early, late in itertools.pairwise(begun)]
            print(f"{job.task}: {job.status}, waits {waits}")


if __name__ == "__main__":
    main()
