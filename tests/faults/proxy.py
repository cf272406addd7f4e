"""A TCP proxy that can cut, silence, half-open or delay connections.

It stands for a network, so it breaks a silent connection after a while, like a kernel that receives no acknowledgements
(``tcp_user_timeout``). The proxy itself acknowledges everything, so no other party would notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_RESET = struct.pack("ii", 1, 0)


class _Line:
    """One connection: the client's end and the server's end."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.dead = False  #: data from the client is discarded

    def break_client(self) -> None:
        _break(self.client)

    def break_server(self) -> None:
        if self.server is not None:
            _break(self.server)

    @property
    def abandoned(self) -> bool:
        """Return whether the client is gone."""
        return self.client.transport.is_closing()


def _break(end: asyncio.StreamWriter) -> None:
    """Reset a connection instead of closing it."""
    raw = end.get_extra_info("socket")
    if raw is not None and not end.transport.is_closing():
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.transport.abort()


class Proxy:
    """Listens on a free port and forwards everything to the target, on a separate thread.

    ``patience``: seconds after which the client's end of a silent connection breaks.
    """

    def __init__(self, target: tuple[str, int], *, patience: float = 2.5) -> None:
        self._target, self._patience = target, patience
        self._lines: set[_Line] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut = False
        self._slow = 0.0
        self._silences = 0
        self.port = 0
        self.accepted = 0  #: accepted connections
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faults-proxy")

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._run_on_loop(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Break every connection and stop listening."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    # Faults --------------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Break every connection and refuse new ones, until ``heal``."""
        self._run_on_loop(self._do_cut)

    def silence(self) -> None:
        """Forward nothing in either direction until ``heal``. Servers do not notice."""
        self._run_on_loop(self._do_silence)

    def half_open(self) -> None:
        """Drop the server's ends without notifying the clients. New connections work."""
        self._run_on_loop(self._do_half_open)

    def slow(self, seconds: float) -> None:
        """Delay all data by this many seconds, each way."""
        self._run_on_loop(lambda: setattr(self, "_slow", seconds))

    def heal(self) -> None:
        """Revert every fault; data that was held back is forwarded."""
        self._run_on_loop(self._do_heal)

    def _run_on_loop(self, act: Callable[[], T]) -> T:
        """Run a function on the proxy's thread, and wait for it."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(act())
            except BaseException as error:  # noqa: BLE001  (re-raised in the caller)
                done.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return done.result(10)

    def _do_cut(self) -> None:
        self._cut = True
        for line in list(self._lines):
            line.break_client()
            line.break_server()

    def _do_silence(self) -> None:
        self._flow.clear()
        self._silences += 1
        self._loop.call_later(self._patience, self._give_up, self._silences)

    def _give_up(self, silence: int) -> None:
        """Break the clients' ends of connections that have been silent since then."""
        if silence == self._silences and not self._flow.is_set():
            for line in list(self._lines):
                line.break_client()

    def _do_half_open(self) -> None:
        for line in list(self._lines):
            line.dead = True
            line.break_server()
            self._loop.call_later(self._patience, line.break_client)

    def _do_heal(self) -> None:
        self._cut, self._slow = False, 0.0
        for line in list(self._lines):
            if line.abandoned:
                line.break_server()
        self._flow.set()

    # Forwarding ----------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self._flow = asyncio.Event()
        self._flow.set()
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(listening.getsockname()[1])
        self._task(self._listen(listening))

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._accept, sock=listening)
        async with server:
            await server.serve_forever()

    async def _shut(self) -> None:
        self._flow.set()
        for line in list(self._lines):
            line.break_client()
            line.break_server()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        line = _Line(writer)
        self._lines.add(line)
        try:
            await self._forward(line, reader)
        except OSError:
            pass  # one of the ends is gone
        finally:
            self._lines.discard(line)
            line.break_client()
            line.break_server()

    async def _forward(self, line: _Line, reader: asyncio.StreamReader) -> None:
        if self._cut:
            return
        await self._flow.wait()
        answers, line.server = await asyncio.open_connection(*self._target)
        back = asyncio.create_task(self._copy(line, answers, to_client=True))
        try:
            await self._copy(line, reader, to_client=False)
        finally:
            if line.abandoned and not self._flow.is_set():
                # The server does not notice that the client has given up.
                await self._flow.wait()
            if not line.dead:
                line.break_server()
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    async def _copy(self, line: _Line, reader: asyncio.StreamReader, *, to_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._slow:
                    await asyncio.sleep(self._slow)
                await self._flow.wait()
                if line.dead and not to_client:
                    continue
                end = line.client if to_client else line.server
                assert end is not None
                end.write(data)
                await end.drain()
        if to_client and not line.dead:
            await self._flow.wait()
            line.break_client()
