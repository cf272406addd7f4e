"""A way to a server that can be bad: cut, silent, half-open or slow, as the run that owns it says. It knows no protocol.

It stands for a network, and so breaks a silent connection after a while as the kernel would that waits in vain for the other
end to acknowledge (``tcp_user_timeout``): a proxy acknowledges for it, so nobody else would ever notice.
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
    """One connection: the client's end and the server's."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.dead = False  #: what the client says is swallowed

    def break_client(self) -> None:
        _break(self.client)

    def break_server(self) -> None:
        if self.server is not None:
            _break(self.server)

    @property
    def alone(self) -> bool:
        """Whether the client is gone."""
        return self.client.transport.is_closing()


def _break(end: asyncio.StreamWriter) -> None:
    """End a connection with a reset, not with a farewell."""
    raw = end.get_extra_info("socket")
    if raw is not None and not end.transport.is_closing():
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.transport.abort()


class Proxy:
    """Listens on a port of its own and passes everything on to the target, on a thread of its own.

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
        self.accepted = 0  #: connections that came in
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faults-proxy")

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._ask(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Break everything and listen no more."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    # What is to be bad ---------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Every connection breaks, and none can be made, until ``heal``."""
        self._ask(self._do_cut)

    def silence(self) -> None:
        """A black hole: nothing comes through in either direction until ``heal``. Servers learn nothing of it."""
        self._ask(self._do_silence)

    def half_open(self) -> None:
        """The server's ends are gone, and the clients are not told. New connections are sound."""
        self._ask(self._do_half_open)

    def slow(self, seconds: float) -> None:
        """Everything takes so much longer, each way."""
        self._ask(lambda: setattr(self, "_slow", seconds))

    def heal(self) -> None:
        """All is well again; what was held back goes on its way."""
        self._ask(self._do_heal)

    def _ask(self, act: Callable[[], T]) -> T:
        """Do it on the proxy's thread, and wait until it is done."""
        done: Future[T] = Future()

        def there() -> None:
            try:
                done.set_result(act())
            except BaseException as error:  # noqa: BLE001  (whoever asked shall hear it)
                done.set_exception(error)

        self._loop.call_soon_threadsafe(there)
        return done.result(10)

    def _do_cut(self) -> None:
        self._cut = True
        for line in list(self._lines):
            line.break_client()
            line.break_server()

    def _do_silence(self) -> None:
        self._flow.clear()
        self._silences += 1
        self._loop.call_later(self._patience, self._despair, self._silences)

    def _despair(self, silence: int) -> None:
        """Who has waited in vain since this silence began gives up."""
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
            if line.alone:
                line.break_server()
        self._flow.set()

    # Passing on ----------------------------------------------------------------------------------------------------------

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
            await self._carry(line, reader)
        except OSError:
            pass  # one of the ends is gone
        finally:
            self._lines.discard(line)
            line.break_client()
            line.break_server()

    async def _carry(self, line: _Line, reader: asyncio.StreamReader) -> None:
        if self._cut:
            return
        await self._flow.wait()
        answers, line.server = await asyncio.open_connection(*self._target)
        back = asyncio.create_task(self._pump(line, answers, to_client=True))
        try:
            await self._pump(line, reader, to_client=False)
        finally:
            if line.alone and not self._flow.is_set():
                await self._flow.wait()  # a server does not hear that a client has despaired
            if not line.dead:
                line.break_server()
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)

    async def _pump(self, line: _Line, reader: asyncio.StreamReader, *, to_client: bool) -> None:
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
