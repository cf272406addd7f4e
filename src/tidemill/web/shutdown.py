"""Termination of event streams when the application or its server stops.

A server finishes open responses before it runs lifespan shutdown, so a stream that waited for lifespan shutdown would
block it. No ASGI message announces a shutdown either. While streams are open, one task per event loop therefore checks
the server itself. If the server is unknown, such as granian, handlers in front of its own ones receive its stop
signals.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

INTERVAL = 0.2
"""Seconds between two checks of the server."""


class Shutdown:
    """The stop signal of one API, set by ``set`` or found on the server of a stream's event loop.

    ``set`` may be called from any thread and from a signal handler. The rest is called on the event loop of a stream.
    """

    def __init__(self) -> None:
        self._set = False
        self._watches: dict[asyncio.AbstractEventLoop, _Watch] = {}

    @property
    def is_set(self) -> bool:
        """Whether the streams of the running event loop must end."""
        watch = self._watches.get(asyncio.get_running_loop())
        return self._set or (watch is not None and watch.stopping)

    def set(self) -> None:
        """Wake every subscriber. Calling it twice is harmless."""
        self._set = True
        for loop, watch in list(self._watches.items()):
            # If the loop is closed, nothing waits on it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(watch.wake)

    def subscribe(self, event: asyncio.Event) -> None:
        """Set this event of the running loop when its streams must end."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = _Watch(loop)
        watch.waiters.add(event)
        if self.is_set:
            event.set()

    def unsubscribe(self, event: asyncio.Event) -> None:
        """Undo ``subscribe``. The check of the server ends with the last subscriber."""
        loop = asyncio.get_running_loop()
        watch = self._watches[loop]
        watch.waiters.discard(event)
        if not watch.waiters:
            del self._watches[loop]
            watch.close()


class _Watch:
    """Checks the servers of one event loop while streams are open on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiters: set[asyncio.Event] = set()
        self.stopping = False
        checks = list(_stop_checks(loop))
        self._task = loop.create_task(self._check(checks)) if checks else None
        self._handlers = None if checks else _SignalHandlers(lambda: loop.call_soon_threadsafe(self._stop))

    def wake(self) -> None:
        for event in self.waiters:
            event.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._handlers is not None:
            self._handlers.remove()

    def _stop(self) -> None:
        self.stopping = True
        self.wake()

    async def _check(self, checks: list[Callable[[], bool]]) -> None:
        while True:
            if any(is_stopping() for is_stopping in checks):
                self._stop()
                return
            await asyncio.sleep(INTERVAL)


class _SignalHandlers:
    """Handlers of SIGTERM and SIGINT that call a function and then the handlers that were there before.

    Event loops act on a signal through a file descriptor, which handlers of Python do not affect.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            previous = signal.getsignal(number)
            # Without a handler the signal ends the process, and there is nothing to wait for.
            if callable(previous):
                self._previous[number] = previous
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # If the loop is closed, no stream is open.
        with contextlib.suppress(RuntimeError):
            self._act()
        self._previous[number](number, frame)

    def remove(self) -> None:
        for number, previous in self._previous.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, previous)


def _stop_checks(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[], bool]]:
    """A function for each HTTP server on this loop that returns whether the server stops.

    The server is not passed to the application. It runs as a coroutine that one of the loop's tasks awaits.
    """
    for task in asyncio.all_tasks(loop):
        coroutine: Any = task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            if (check := _stop_check(frame)) is not None:
                yield check
                break
            coroutine = coroutine.cr_await


def _stop_check(frame: FrameType) -> Callable[[], bool] | None:
    owner = frame.f_locals.get("self")
    if _is_server(owner):
        return lambda: _is_stopping(owner)
    if frame.f_globals.get("__name__") == "hypercorn.asyncio.run":
        # ``worker_serve`` sets this event before it waits for open responses.
        terminated = getattr(frame.f_locals.get("context"), "terminated", None)
        if terminated is not None:
            return lambda: bool(terminated.is_set())
    return None


def _is_server(owner: object) -> bool:
    """Whether this is uvicorn's ``Server`` or gunicorn's own ASGI worker."""
    packages = {kind.__module__.partition(".")[0] for kind in type(owner).__mro__}
    return not packages.isdisjoint({"uvicorn", "gunicorn"}) and hasattr(owner, "servers")


def _is_stopping(server: Any) -> bool:
    """Whether a server was asked to stop, or has stopped listening, as it does after its last allowed request."""
    if getattr(server, "should_exit", False) or not getattr(server, "alive", True):
        return True
    return any(not listener.is_serving() for listener in server.servers)
