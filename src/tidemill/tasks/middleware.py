"""One chain around every enqueue and every execution. A middleware is called with the step and with what comes next.

::

    def timed(step, proceed):
        begun = time.perf_counter()
        try:
            return proceed()
        finally:
            print(step.kind, step.task, time.perf_counter() - begun)

A coroutine function is awaited and awaits ``proceed()``; in a synchronous step it runs to its end on a loop of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.domain.job import Job, NewJob


@dataclass(slots=True)
class Step:
    """What is about to be done. On enqueue ``jobs`` may be replaced by changed ones before going on."""

    kind: Literal["enqueue", "execute"]
    task: str
    tenant: str
    jobs: Sequence[NewJob] = ()
    job: Job | None = None


Middleware = Callable[[Step, Callable[[], Any]], Any]


def around(chain: Sequence[Middleware], step: Step, act: Callable[[], Any]) -> Any:
    """Do it inside the chain, the first middleware outermost."""
    if not chain:
        return act()
    first, rest = chain[0], chain[1:]
    if inspect.iscoroutinefunction(first):

        async def proceed() -> Any:
            return await asyncio.to_thread(around, rest, step, act)

        return _run(lambda: first(step, proceed))
    return first(step, lambda: around(rest, step, act))


async def around_async(chain: Sequence[Middleware], step: Step, act: Callable[[], Awaitable[Any]]) -> Any:
    """The same for something that is awaited. A plain middleware hands on the awaitable it gets."""
    if not chain:
        return await act()
    answer = chain[0](step, lambda: around_async(chain[1:], step, act))
    return await answer if inspect.isawaitable(answer) else answer


def _run(make: Callable[[], Any]) -> Any:
    """Run a coroutine to its end, also where a loop is running already."""

    async def main() -> Any:
        return await make()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()
