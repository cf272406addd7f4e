"""Termination of event streams when the application or its server stops.

A server finishes open responses before it runs lifespan shutdown, so a stream that waited for lifespan shutdown would
block it. No ASGI message announces a shutdown either. While streams are open, one task per event loop therefore checks
the server itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
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
            watch.task.cancel()


class _Watch:
    """Checks the servers of one event loop while streams are open on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.waiters: set[asyncio.Event] = set()
        self.stopping = False
        self.task = loop.create_task(self._check(list(_servers(loop))))

    def wake(self) -> None:
        for event in self.waiters:
            event.set()

    async def _check(self, servers: list[Any]) -> None:
        while servers:
            if any(_is_stopping(server) for server in servers):
                self.stopping = True
                self.wake()
                return
            await asyncio.sleep(INTERVAL)


def _servers(loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """The HTTP servers that run on this loop: uvicorn's ``Server`` or gunicorn's own ASGI worker.

    Neither is passed to the application. Both run as a method that one of the loop's tasks awaits.
    """
    for task in asyncio.all_tasks(loop):
        coroutine: Any = task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            owner = frame.f_locals.get("self")
            if _is_server(owner):
                yield owner
                break
            coroutine = coroutine.cr_await


def _is_server(owner: object) -> bool:
    packages = {kind.__module__.partition(".")[0] for kind in type(owner).__mro__}
    return not packages.isdisjoint({"uvicorn", "gunicorn"}) and hasattr(owner, "servers")


def _is_stopping(server: Any) -> bool:
    """Whether a server was asked to stop, or has stopped listening, as it does after its last allowed request."""
    if getattr(server, "should_exit", False) or not getattr(server, "alive", True):
        return True
    return any(not listener.is_serving() for listener in server.servers)
