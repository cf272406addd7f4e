"""A process that writes one large value, and is killed at a given point of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from tidemill import App
from tidemill.domain.large_values import BlobKey
from tidemill.stores import blob_files
from tidemill.stores.base import Store

SIZE = 3_000_000
POINTS = ("before_row", "after_row", "within_object", "after_object", "before_job", "after_job")
"""Around the row of the blob, within and after the object, and around the row of the job."""


def make(url: str, place: str | None) -> App:
    app = App(url, migrate=True, blobs=place)

    @app.task
    def measure(text: str) -> int:
        return len(text)

    @app.task
    def produce() -> str:
        return "p" * SIZE

    return app


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, before: Callable[[], object], after: Callable[[], object]) -> None:
    """Call these functions around a method."""
    real = getattr(owner, name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before()
        answer = real(*args, **kwargs)
        after()
        return answer

    setattr(owner, name, wrapped)


def none() -> None:
    """Continue."""


def arm(store: Store, point: str) -> None:
    before, after = (die if point == "before_row" else none), (die if point == "after_row" else none)
    around(store, "put_blob", before, after)
    around(blob_files, "write_object", none, die if point == "after_object" else none)
    for verb in ("enqueue", "finish", "step"):
        end = die if point == "after_job" else none
        around(store, verb, die if point == "before_job" else none, end)
    if point == "within_object":
        real = blob_files.write_object

        def half(place: str, key: BlobKey, parts: Any) -> None:
            def cut() -> Any:
                yield next(iter(parts))
                die()

            real(place, key, cut())

        blob_files.write_object = half


def main(url: str, place: str, point: str, mode: str) -> None:
    app = make(url, place or None)
    if mode == "enqueue":
        app.store.check()
        arm(app.store, point)
        app.bound_task("measure").enqueue(text="x" * SIZE)
    else:
        job = app.bound_task("produce").enqueue()
        arm(app.store, point)
        with app.worker(threads=1):
            job.result(60)
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
