"""A long job that tells how far it is: a document, at 0, 30, 60 and 100 per cent.

    python examples/patterns/long_running.py [STORE]

Progress is live (``job.watch()``, the dashboard, ``/api/jobs/ID/events``) with an estimate of the end. A checkpoint lets a retry go on
where the last attempt stopped, and ``ctx.check()`` ends the job where that is safe when somebody cancels it.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from tidemill import App, Context, Fixed, ManualClock

done: list[str] = []


app = App(
    sys.argv[1] if len(sys.argv) > 1 else "memory://", clock=ManualClock(), migrate=True, name="documents"
)


@app.task(
    queue="documents", retry=Fixed(max_attempts=3, wait=timedelta(seconds=5)), timeout=timedelta(minutes=30)
)
def process_document(ctx: Context, name: str) -> str:
    """Read it, understand it, store it; the first attempt is cut off in the middle."""
    steps = [(0.3, "read"), (0.6, "understood"), (1.0, "stored")]
    begin = int(ctx.checkpoint("passed") or 0)
    ctx.progress(0.0 if begin == 0 else steps[begin - 1][0], "begun" if begin == 0 else "going on")
    for number, (fraction, step) in enumerate(steps[begin:], begin + 1):
        ctx.check()
        done.append(step)
        ctx.progress(fraction, step)
        ctx.save_checkpoint("passed", str(number))
        if step == "understood" and ctx.attempt == 1:
            raise ConnectionError("the store went away")
    return f"{name}: {', '.join(done)}"


def main() -> None:
    """One document, two attempts, no step twice."""
    with app, app.testing() as testing:
        job = process_document.enqueue(name="contract.pdf")
        testing.drain()
        job.refresh()
        print(f"after the first attempt: {job.status}, {done}")
        testing.run_until_idle(timedelta(minutes=1))
        job.refresh()
        print(f"{job.status} after {job.row.attempt} attempts, {job.progress:.0%}")
        print(job.value)


if __name__ == "__main__":
    main()
