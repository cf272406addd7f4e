"""The app of the upgrade run. The first release and the current code both run it, so it uses what both have.

``python -m tests.faults.upgrade_app seed`` creates jobs in every state, and ``produce`` enqueues until its input is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from tidemill import App, Context, Every, Fixed, Limit, PermanentError, Review, Unique
from tidemill.errors import StoreError

STORE, FOLDER, CODE = "UPGRADE_STORE", "UPGRADE_FOLDER", "UPGRADE_CODE"
SECOND = timedelta(seconds=1)

app = App(os.environ.get(STORE, "memory://"), name="upgrade")


def note(kind: str, ctx: Context) -> None:
    """Append a line to the ledger: kind, task, job, attempt, time, and which code runs the job."""
    words = (kind, ctx.job.task, ctx.job.id, ctx.attempt, repr(time.monotonic()), os.environ[CODE])
    _append("effects", " ".join(map(str, words)))


def _append(name: str, text: str) -> None:
    file = os.open(Path(os.environ[FOLDER], name), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


async def _wait_for(gate: str) -> None:
    """Wait until the run opens the gate."""
    place = os.path.join(os.environ[FOLDER], gate)  # noqa: PTH118
    while not os.path.exists(place):  # noqa: ASYNC110, ASYNC240, PTH110  (another process opens it)
        await asyncio.sleep(0.05)


@app.task
async def work(ctx: Context, n: int) -> int:
    note("B", ctx)
    ctx.log("working", n=n)
    ctx.progress(0.5, "half")
    note("E", ctx)
    return n * 2


@app.task(limits=[Limit(max=1, name="one")])
async def alone(ctx: Context, n: int) -> int:
    note("B", ctx)
    await asyncio.sleep(0.005)
    note("E", ctx)
    return n


@app.task(retry=Fixed(max_attempts=3, wait=SECOND))
async def flaky(ctx: Context, n: int) -> int:
    note("B", ctx)
    if ctx.attempt == 1:
        raise ConnectionError(f"attempt of {n}")
    note("E", ctx)
    return n


@app.task(timeout=timedelta(minutes=5))
async def hold(ctx: Context, gate: str) -> str:
    note("B", ctx)
    ctx.save_checkpoint("seen", "yes")
    await _wait_for(gate)
    note("E", ctx)
    return gate


@app.task(max_concurrent=1)
async def held_fire(ctx: Context, gate: str) -> str:
    note("B", ctx)
    await _wait_for(gate)
    note("E", ctx)
    return gate


@app.task
async def fire(ctx: Context) -> None:
    note("B", ctx)
    note("E", ctx)


@app.task(retry=None)
async def refuse(n: int) -> None:
    raise PermanentError(f"order {n} is unknown")


@app.task(retry=Fixed(max_attempts=2, wait=timedelta(0)))
async def exhaust(n: int) -> None:
    raise ConnectionError(f"server {n} is down")


@app.task(retry=None, timeout=timedelta(milliseconds=100))
async def overrun() -> None:
    await asyncio.sleep(30)


@app.task
async def review(ctx: Context, n: int) -> dict[str, int]:
    raise Review("is this right?", output={"n": n})


# Programs of the first release ---------------------------------------------------------------------------------------------


def seed() -> None:
    """Create jobs in every state that needs no running worker, and everything else that a store keeps."""
    made: dict[str, list[str]] = {}

    def keep(name: str, *jobs: Any) -> None:
        made.setdefault(name, []).extend(str(job.id) for job in jobs)

    # Jobs that were archived, or that had ended.
    with app.worker():
        keep("archived", work.enqueue(n=1), refuse.enqueue(n=1))
        for id in made["archived"]:
            _until_ended(id)
        app.archive.run(older_than=timedelta(0))
        rich = work.using(
            tenant="acme", priority=5, tags=["a", "ü"], metadata={"k": {"n": 1}}, reference=("user", "42")
        )
        keep("completed", work.enqueue(n=2), rich.enqueue(n=3), flaky.enqueue(n=4))
        keep("failed", refuse.enqueue(n=2))
        keep("dead_lettered", exhaust.enqueue(n=1))
        keep("timed_out", overrun.enqueue())
        keep("review_needed", review.enqueue(n=1), review.enqueue(n=2))
        for id in (id for state, ids in made.items() if state != "archived" for id in ids):
            _until_ended(id)
    app.control.pause("queue", "later", reason="until the upgrade is over")
    later = work.using(queue="later")
    keep("pending", *later.enqueue_many([{"n": n} for n in range(50)]))
    keep("unique", later.using(unique=Unique()).enqueue(n=99))
    keep("scheduled", *work.using(delay=timedelta(hours=1)).enqueue_many([{"n": n} for n in range(20)]))
    keep("due", *work.using(delay=timedelta(seconds=8)).enqueue_many([{"n": n} for n in range(20)]))
    cancelled = work.using(delay=timedelta(hours=1)).enqueue(n=5)
    cancelled.cancel("not needed")
    keep("cancelled", cancelled)
    # Jobs that the old workers hold while the schema changes.
    keep("held", *hold.enqueue_many([{"gate": "drained"}] * 5))
    keep("lost", *hold.using(queue="doomed").enqueue_many([{"gate": "killed"}] * 5))
    app.definitions.save("report", "work", args={"n": 7})
    app.schedules.add("fire", Every(SECOND), "each-second")
    app.schedules.add("held_fire", Every(SECOND), "queued", args={"gate": "fires"}, overlap="queue")
    app.control.set("worker_note", "kept")
    key = app.keys.create("ops", role="operator")
    facts = {"jobs": made, "key": key.secret, "key_id": key.key.id}
    Path(os.environ[FOLDER], "seeded").write_text(json.dumps(facts))


def _until_ended(id: str) -> None:
    """Wait until the job has ended or is in review."""
    while str(app.jobs.get(id, tenant="*").status) in ("pending", "claimed", "running", "scheduled"):
        time.sleep(0.05)


def produce() -> None:
    """Enqueue a mix of jobs until standard input is closed; note each job whose enqueue returned."""
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    n = refused = 0
    while not over.wait(0.05):
        n += 1
        try:
            jobs = work.enqueue_many([{"n": i} for i in range(4)])
            jobs += [alone.enqueue(n=n), flaky.enqueue(n=n)] if n % 2 else [alone.enqueue(n=n)]
        except StoreError:
            refused += 1
        else:
            _append("accepted", "\n".join(f"{job.id} {os.environ[CODE]}" for job in jobs))
    print(json.dumps({"refused": refused}), flush=True)


if __name__ == "__main__":
    with app:
        {"seed": seed, "produce": produce}[sys.argv[1]]()
