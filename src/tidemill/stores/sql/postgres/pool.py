"""A small pool of connections: made when needed, looked at before they are handed out, thrown away when in doubt.

No background thread and no health query: an idle connection whose socket has something to say has been closed by the
server, and that one look costs a microsecond. A process that was forked starts with an empty pool.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from psycopg.pq import TransactionStatus

from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.stores.sql.postgres.wire import Connection


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
        self._places: SimpleQueue[None] = SimpleQueue()  # as a semaphore, which costs ten times as much
        for _ in range(self._size):
            self._places.put(None)
        self._closed = False

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> Connection:
        """A connection, to be given back."""
        if self._pid != os.getpid():
            self._reset()
        self.check()
        try:
            self._places.get(timeout=self._patience)
        except Empty:
            raise StoreBusy(
                f"all {self._size} connections of this process are in use; raise ?pool= or hold them shorter"
            ) from None
        try:
            return self._sound() or self._connect()
        except BaseException:
            self._places.put(None)
            raise

    def spare(self) -> Connection | None:
        """A connection, if that leaves another for others; nobody waits for it."""
        if self._pid == os.getpid() and self._places.qsize() < 2:
            return None
        return self.take()

    def give_back(self, connection: Connection) -> None:
        """It is kept only if it is still sound and outside a transaction."""
        try:
            if self._pid != os.getpid():
                return  # a fork's copy; to close it would end the parent's
            idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if idle and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()
        finally:
            self._places.put(None)

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
            if not connection.spoken():
                return connection
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
