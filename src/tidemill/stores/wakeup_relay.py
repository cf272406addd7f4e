"""Wake-ups that a supervisor receives once and passes on to its runners.

Each runner has a socket for them, because its event loop watches it and other messages must not delay a wake-up. A message is
one line of JSON. A runner that does not read loses wake-ups, and learns so with the next one that arrives.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
from dataclasses import dataclass

_SIZE = 65_536  # bytes to read at once
_STAND_BY = 0.25  # seconds between two checks while an event loop watches the socket
_MISSED = frozenset({"change"})


@dataclass(slots=True)
class _Outlet:
    """The socket of one runner, and the end of a line that did not fit into it."""

    socket: socket.socket
    rest: bytes = b""
    missed: bool = False

    def send(self, topics: frozenset[str]) -> None:
        if self.missed:
            topics |= _MISSED
        line = json.dumps(sorted(topics), separators=(",", ":")).encode() + b"\n"
        try:
            if self.rest:
                self.rest = self.rest[self.socket.send(self.rest) :]
            if self.rest:
                self.missed = True
                return
            self.rest = line[self.socket.send(line) :]
            self.missed = False
        except OSError:  # full, or the runner is gone, which its supervisor notices
            self.missed = True


class WakeupRelay:
    """The runners of one store. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outlets: dict[int, _Outlet] = {}

    def add(self, number: int, end: socket.socket) -> None:
        """Pass wake-ups on to this socket."""
        end.setblocking(False)
        with self._lock:
            self._outlets[number] = _Outlet(end)

    def remove(self, number: int) -> None:
        """Stop doing so. The socket may be closed then."""
        with self._lock:
            self._outlets.pop(number, None)

    def send(self, topics: frozenset[str]) -> None:
        """Pass these topics on. It never waits for a runner."""
        with self._lock:
            for outlet in self._outlets.values():
                outlet.send(topics)


class RelayedListener:
    """A runner's end: a listener of a store, and one that an event loop can watch."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._end = end
        self._part = b""
        self._reading = threading.Lock()
        self._closed = threading.Event()
        self._bell, self._rung = socket.socketpair()
        self._waiting = threading.Lock()
        self._lent = self._gone = False

    def wait(self, timeout: float) -> frozenset[str]:
        with self._waiting:
            return frozenset() if self._closed.is_set() else self._wait(timeout)

    def _wait(self, timeout: float) -> frozenset[str]:
        topics = self._drain()
        if topics:
            return topics
        if self._gone:
            self._closed.wait(timeout)
        elif self._lent:
            _wait([self._rung.fileno()], min(timeout, _STAND_BY))
        else:
            _wait([self._end.fileno(), self._rung.fileno()], timeout)
        return frozenset() if self._closed.is_set() else self._drain()

    def lend(self) -> int | None:
        self._lent = not self._gone
        return os.dup(self._end.fileno()) if self._lent else None

    def hear(self) -> frozenset[str]:
        topics = self._drain()
        if self._gone and not topics:
            raise ConnectionError("the supervisor has closed its end")
        return topics

    def _drain(self) -> frozenset[str]:
        topics = set[str]()
        with self._reading, contextlib.suppress(BlockingIOError):
            while not self._gone:
                data = self._end.recv(_SIZE)
                self._gone = not data
                *lines, self._part = (self._part + data).split(b"\n")
                for line in lines:
                    topics.update(json.loads(line))
        return frozenset(topics)

    def take_back(self) -> None:
        self._lent = False

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._bell.send(b"!")
            with self._waiting:
                self._bell.close()
                self._rung.close()


def _wait(files: list[int], seconds: float) -> None:
    """Wait until one of the files is readable, or for this time."""
    waiting = select.poll()
    for file in files:
        waiting.register(file, select.POLLIN)
    waiting.poll(min(seconds, 3600.0) * 1000)
