"""The lifespan of a runner: set-up before its first job, tear-down after its last.

An async lifespan lives in one asyncio task on the event loop of the runner's coroutines, so that they can use what it
opens, such as connection pools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from typing import Any

from tidemill.errors import BadSettings, UsageError
from tidemill.tasks.hooks import Hooks

_log = logging.getLogger("tidemill.engine")

EXIT_LIMIT = 10.0
"""Seconds for the tear-down of an async lifespan."""


class Lifetime:
    """The lifespan of an app in one runner, and the event loop of that runner's coroutines."""

    def __init__(self, hooks: Hooks) -> None:
        self._make = hooks.lifespan
        self._hooks = hooks
        self._state: Any = None
        self._leave: Callable[[], object] | None = None
        self._task: asyncio.Task[None] | None = None
        self._end = asyncio.Event()

    @property
    def state(self) -> Any:
        """The state that the lifespan yields."""
        if self._make is None:
            raise UsageError("ctx.state needs a lifespan; give the app one: App(lifespan=…)")
        return self._state

    @property
    def site_url(self) -> str | None:
        """The address of the app's dashboard and HTTP API, if the app has one."""
        return self._hooks.site_url

    def enter(self) -> None:
        """Enter the lifespan, if the app has one and it is not entered yet."""
        if self._make is None or self._leave is not None:
            return
        manager: Any = self._make()
        if is_async_manager(manager):
            entered: Future[Any] = Future()
            self._begin(lambda: self._live(manager, entered), entered)
            self._state = entered.result()
            self._leave = self._finish
        else:
            self._state = manager.__enter__()
            self._leave = lambda: manager.__exit__(None, None, None)

    def exit(self) -> None:
        """Exit the lifespan. Errors are logged: all jobs have ended, and nothing could handle them."""
        leave, self._leave = self._leave, None
        if leave is None:
            return
        try:
            leave()
        except TimeoutError:
            _log.warning(
                "the lifespan of the app has not ended after %g s; continuing without it", EXIT_LIMIT
            )
        except Exception:  # noqa: BLE001  (the end of an app may raise anything, and the worker still has to stop)
            _log.exception("the lifespan of the app raised an exception at its end")
        self._state = None

    async def _live(self, manager: AbstractAsyncContextManager[Any], entered: Future[Any]) -> None:
        """Hold the lifespan open. One task enters and exits it, as cancel scopes require."""
        try:
            async with manager as state:
                entered.set_result(state)
                await self._end.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)

    def _begin(self, live: Callable[[], Coroutine[Any, Any, None]], entered: Future[Any]) -> None:
        """Start the task, and wait until the lifespan is entered."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Ask the task to end, and wait for it."""
        raise NotImplementedError

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the event loop, from a thread that runs a function."""
        raise NotImplementedError

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run the coroutine of a job."""
        return asyncio.run(work)


class LoopLifetime(Lifetime):
    """The lifespan of a runner whose event loop has a thread of its own."""

    def __init__(self, hooks: Hooks, loop_of: Callable[[], asyncio.AbstractEventLoop]) -> None:
        super().__init__(hooks)
        self._loop_of = loop_of

    def _begin(self, live: Callable[[], Coroutine[Any, Any, None]], entered: Future[Any]) -> None:
        loop = self._loop_of()

        def begin() -> None:
            self._task = loop.create_task(live(), context=Context())

        loop.call_soon_threadsafe(begin)
        entered.exception()

    def _finish(self) -> None:
        async def finish() -> None:
            self._end.set()
            if self._task is not None:
                await self._task

        asyncio.run_coroutine_threadsafe(finish(), self._loop_of()).result(EXIT_LIMIT)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop_of()).result()


class OwnLoopLifetime(Lifetime):
    """The lifespan of a runner that runs one job at a time in one thread, with an event loop that runs only during a job."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__(hooks)
        self._runner: asyncio.Runner | None = None

    def _loop_runner(self) -> asyncio.Runner:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner

    def _begin(self, live: Callable[[], Coroutine[Any, Any, None]], entered: Future[Any]) -> None:
        async def begin() -> None:
            self._task = asyncio.create_task(live())
            await asyncio.wait([asyncio.wrap_future(entered)])

        self._loop_runner().run(begin())

    def _finish(self) -> None:
        async def finish() -> None:
            self._end.set()
            if self._task is not None:
                await asyncio.wait_for(self._task, EXIT_LIMIT)

        self._loop_runner().run(finish())

    def exit(self) -> None:
        super().exit()
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        # A loop that lasts: asyncio.run would close the generators of providers before the job.
        return self._loop_runner().run(work)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            return super().run(work)
        try:
            return self._runner.run(work)
        finally:
            self._runner.run(self._cancel_others())

    async def _cancel_others(self) -> None:
        """End what a job has left on the loop, as ``asyncio.run`` does."""
        keep = {asyncio.current_task(), self._task}
        others = [task for task in asyncio.all_tasks() if task not in keep]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class RunningLoopLifetime(Lifetime):
    """The lifespan of a runner on the event loop that is running, entered with ``async with``."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__(hooks)
        self._loop = asyncio.get_running_loop()
        self._manager: Any = None

    async def aenter(self) -> None:
        """Like ``enter``."""
        if self._make is None or self._manager is not None:
            return
        manager: Any = self._make()
        self._state = await manager.__aenter__() if is_async_manager(manager) else manager.__enter__()
        self._manager = manager

    async def aexit(self) -> None:
        """Like ``exit``."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        if is_async_manager(manager):
            await manager.__aexit__(None, None, None)
        else:
            manager.__exit__(None, None, None)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def is_async_manager(manager: Any) -> bool:
    """Whether to enter a context manager with ``async with``. Raises for an object that is no context manager."""
    if hasattr(manager, "__aenter__"):
        return True
    if not hasattr(manager, "__enter__"):
        raise BadSettings(
            f"the lifespan of the app returned a {type(manager).__name__}; it must return a context manager"
        )
    return False
