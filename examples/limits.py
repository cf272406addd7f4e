"""Limits: by key, by rate, by queue, at run time, and a queue that is full: python examples/limits.py [store URL]"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from datetime import timedelta

from tidemill import App, Limit, Rate
from tidemill.errors import QueueFull

app = App(
    sys.argv[1] if len(sys.argv) > 1 else "memory://",
    migrate=True,
    limits={"queue/media": 2, "depth/queue/mail": 5},
)

lock = threading.Lock()
running: Counter[str] = Counter()
highest: Counter[str] = Counter()


def busy(name: str) -> None:
    """Be seen for a moment."""
    with lock:
        running[name] += 1
        highest[name] = max(highest[name], running[name])
    threading.Event().wait(0.02)
    with lock:
        running[name] -= 1


@app.task(limits=[Limit(2, key="account"), Rate(20, per=timedelta(seconds=1))])
def charge(account: str) -> None:
    """At most two at a time for each account, and twenty a second in all."""
    busy(account)


@app.task(queue="media")
def resize() -> None:
    """Its queue is limited, not the task."""
    busy("media")


@app.task(queue="mail")
def send(to: str) -> None: ...


def main() -> None:
    jobs = [charge.enqueue(account=account) for account in ("ann", "bo") for _ in range(5)]
    jobs += [resize.enqueue() for _ in range(6)]
    with app.worker(threads=8):
        for job in jobs:
            job.result(timeout=60)
    for name in ("ann", "bo", "media"):
        print(f"{name}: never more than {highest[name]} at a time")
        assert highest[name] <= 2, name

    send.enqueue_many([{"to": "ann"}] * 5)
    try:
        send.enqueue("bo")
    except QueueFull as full:
        print(full)

    app.limits.set("task/send", 1)  # while it waits: the jobs are given it
    with app.worker():
        for found in app.jobs.list(task="send").items:
            found.result(timeout=60)
    for limit in app.limits.list():
        print(
            f"{limit.name}: {limit.rule.max}, {limit.used} used{', set by hand' if limit.rule.pinned else ''}"
        )


if __name__ == "__main__":
    try:
        main()
    finally:
        app.close()
