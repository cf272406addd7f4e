"""A small pool of connections: made when needed, looked at before they are handed out, thrown away when in doubt.

No background thread and no health query: an idle connection whose socket has something to say has been closed by the
server, and that one look costs a microsecond. A process that was forked starts with an empty pool.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from tidemill.errors import StoreBusy, StoreUnavailable

Connection = psycopg.Connection[tuple[Any, ...]]


class Pool:
    """At most ``size`` connections at a time; who waits longer than ``patience`` seconds for one is told so."""

    def __init__(self, connect: Callable[[], Connection], size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[Connection] = deque()
        self._places = threading.BoundedSemaphore(self._size)
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the block; it comes back only if it is still sound and outside a transaction."""
        if self._pid != os.getpid():
            self._reset()
        self.check()
        if not self._places.acquire(timeout=self._patience):
            raise StoreBusy(
                f"all {self._size} connections of this process are in use; raise ?pool= or hold them shorter"
            )
        try:
            connection = self._sound() or self._connect()
            try:
                yield connection
            finally:
                self._give_back(connection)
        finally:
            self._places.release()

    def check(self) -> None:
        """Nothing, unless the pool is closed."""
        if self._closed:
            raise StoreUnavailable("this store is closed; open it again")

    def _sound(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not _spoken(connection):
                return connection
            connection.close()

    def _give_back(self, connection: Connection) -> None:
        if self._pid != os.getpid():
            return  # a fork's copy; to close it would end the parent's
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if idle and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close what is idle; what is out is closed when it comes back."""
        if self._pid != os.getpid():
            self._reset()
        self._closed = True
        self.empty()

    def empty(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().close()


def _spoken(connection: Connection) -> bool:
    """Whether the server has sent something unasked (its farewell, as a rule), or the connection is broken."""
    if connection.closed or connection.broken:
        return True
    return readable([connection.fileno()], 0)


def readable(files: Sequence[int], seconds: float) -> bool:
    """Whether one of these has something to read, waiting so long for it."""
    if not hasattr(select, "poll"):
        return bool(select.select(files, [], [], seconds)[0])
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return bool(poll.poll(seconds * 1000))
