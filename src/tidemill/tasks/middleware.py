"""Middleware: functions around every enqueue and every execution.

A middleware is called with the step and a function that carries it out::

    @app.middleware(only="enqueue")
    def refuse_at_night(step, proceed):
        if is_night():
            raise PermissionError("no new jobs at night")
        return proceed()

A coroutine function awaits ``proceed()``. In a synchronous step it runs on an event loop of its own, which is slow:
``app.around`` wraps synchronous and asynchronous tasks alike.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tidemill.domain.job import JobRow, NewJob


@dataclass(slots=True)
class HookStep:
    """The step that the hooks are around.

    On enqueue, ``jobs`` may be replaced by changed ones, and ``headers`` are added to the headers of every job.
    """

    kind: Literal["enqueue", "execute"]
    task: str
    tenant: str
    jobs: Sequence[NewJob] = ()
    job: JobRow | None = None
    headers: dict[str, str] = field(default_factory=dict)


Middleware = Callable[[HookStep, Callable[[], Any]], Any]


def around(chain: Sequence[Middleware], step: HookStep, act: Callable[[], Any]) -> Any:
    """Carry out a step inside the chain, the first middleware outermost."""
    if not chain:
        return act()
    first, rest = chain[0], chain[1:]
    if is_coroutine(first):
        import asyncio

        async def proceed() -> Any:
            return await asyncio.to_thread(around, rest, step, act)

        return _run(lambda: first(step, proceed))
    return first(step, lambda: around(rest, step, act))


async def around_async(chain: Sequence[Middleware], step: HookStep, act: Callable[[], Awaitable[Any]]) -> Any:
    """Carry out an awaited step inside the chain. A plain middleware returns the awaitable that ``proceed`` returns."""
    if not chain:
        return await act()
    answer = chain[0](step, lambda: around_async(chain[1:], step, act))
    return await answer if inspect.isawaitable(answer) else answer


def is_coroutine(hook: Callable[..., Any]) -> bool:
    """Whether calling the hook returns a coroutine; also true for an object with an async ``__call__``."""
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)


def _run(make: Callable[[], Any]) -> Any:
    """Run a coroutine to completion, on another thread if this one runs an event loop."""
    # Imported here: a supervisor loads this module, and asyncio would cost it 7 MB.
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    async def main() -> Any:
        return await make()

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main()).result()
