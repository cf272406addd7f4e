"""What hooks around a job cost: CPU time per job with and without them.

    python3 dev.py bench around [--jobs 4000] [--rounds 5]

Each side drains jobs of an empty task on the memory store with ``app.testing()``. The sides take turns, and the result is the
difference of their medians. CPU time is counted and not the clock's, so other work on the machine disturbs it little.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from tidemill import App

PLAIN, ASYNC = "a context manager", "an async context manager"
MIDDLEWARE = "a middleware"
TASKS = ("function", "coroutine")


@contextmanager
def plain(_: Any) -> Iterator[None]:
    """Surround a job."""
    yield


@asynccontextmanager
async def awaited(_: Any) -> AsyncIterator[None]:
    """Surround a job, too."""
    await asyncio.sleep(0)
    yield


def add_hook(app: App, hook: str | None, task: str) -> None:
    """Declare the hook of one side."""
    if hook == PLAIN:
        app.around(execute=plain)
    elif hook == ASYNC:
        app.around(execute=awaited)
    elif hook == MIDDLEWARE and task == "function":

        @app.middleware(only="execute")
        def proceed(_: Any, go_on: Callable[[], Any]) -> Any:
            return go_on()

    elif hook == MIDDLEWARE:

        @app.middleware(only="execute")
        async def proceed_later(_: Any, go_on: Callable[[], Any]) -> Any:
            return await go_on()


def cost(task: str, hook: str | None, jobs: int) -> float:
    """CPU microseconds of a job."""
    with App("memory://") as app:
        add_hook(app, hook, task)
        if task == "function":

            @app.task(name="empty")
            def empty() -> None: ...

        else:

            @app.task(name="empty")
            async def empty_later() -> None: ...

        for _ in range(jobs):
            app.enqueue("empty")
        testing = app.testing()
        began = time.process_time()
        testing.drain()
        took = time.process_time() - began
        assert app.jobs.count(status="completed") == jobs
    return took / jobs * 1e6


def main() -> None:
    """Measure each kind of hook around both kinds of tasks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    hooks = (None, PLAIN, ASYNC, MIDDLEWARE)
    for task in TASKS:
        times: dict[str | None, list[float]] = {hook: [] for hook in hooks}
        for _ in range(options.rounds):
            for hook in hooks:
                times[hook].append(cost(task, hook, options.jobs))
        alone = statistics.median(times[None])
        print(f"{task}: {alone:.1f} µs of CPU time per job without hooks")
        for hook in hooks[1:]:
            print(f"  {hook}: {statistics.median(times[hook]) - alone:+.1f} µs")


if __name__ == "__main__":
    main()
