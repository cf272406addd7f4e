"""A small pool of connections, checked before use and discarded when in doubt.

There is no background thread and no health query: an idle connection whose socket is readable has been closed by the server, and
this check costs a microsecond. A forked process starts with an empty pool.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from psycopg.pq import TransactionStatus

from tidemill.errors import StoreBusy, StoreUnavailable
from tidemill.stores.sql.postgres.prepared_connection import Connection

RARE = 20
"""A connection with fewer uses between two rests is closed: opening it again costs less than the server's memory for it."""


class Pool:
    """At most ``size`` connections at a time; waiting longer than ``patience`` seconds for one raises ``StoreBusy``."""

    def __init__(self, connect: Callable[[], Connection], size: int, patience: float) -> None:
        self._connect = connect
        self._size = size
        self._patience = patience
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: deque[Connection] = deque()
        self._places: SimpleQueue[None] = SimpleQueue()  # used as a semaphore, at a tenth of the cost
        for _ in range(self._size):
            self._places.put(None)
        self._closed = False
        self._uses = [0] * self._size  # of the idle connection at each place, since the last rest

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for the duration of the block."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> Connection:
        """A connection; the caller returns it with ``give_back``."""
        connection = self._take(self._patience)
        if connection is None:
            raise StoreBusy(
                f"all {self._size} connections of this process are in use; raise ?pool= or shorten your transactions"
            )
        return connection

    def free(self) -> Connection | None:
        """A connection if one is free, without waiting; None otherwise."""
        return self._take(0)

    def _take(self, seconds: float) -> Connection | None:
        if self._pid != os.getpid():
            self._reset()
        if self._closed:
            self.check()
        try:
            self._places.get(timeout=seconds) if seconds else self._places.get_nowait()
        except Empty:
            return None
        try:
            return self._sound() or self._connect()
        except BaseException:
            self._places.put(None)
            raise

    def spare(self) -> Connection | None:
        """A connection if that leaves another one free, without waiting; None otherwise."""
        if self._pid == os.getpid() and self._places.qsize() < 2:
            return None
        return self.take()

    def give_back(self, connection: Connection) -> None:
        """Return a connection. It is kept only if it is usable and outside a transaction."""
        try:
            if self._pid != os.getpid():
                return  # a fork's copy: closing it would end the parent's session
            idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if idle and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()
        finally:
            self._places.put(None)

    def check(self) -> None:
        """Raise an error if the pool is closed."""
        if self._closed:
            raise StoreUnavailable("this store is closed; open it again")

    def _sound(self) -> Connection | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            self._uses[len(self._idle)] += 1
            if not connection.spoken():
                return connection
            connection.close()

    def rest(self, keep: int) -> None:
        """Close idle connections that were hardly used since the last call, but keep this many."""
        for uses in self._uses:
            if uses >= RARE or len(self._idle) <= keep:
                break
            with suppress(IndexError):  # taken by another thread
                # From the end that ``take`` uses last.
                self._idle.popleft().close()
        self._uses = [0] * self._size

    def close(self) -> None:
        """Close idle connections; those in use are closed when they are returned."""
        if self._pid != os.getpid():
            self._reset()
        self._closed = True
        self.empty()

    def empty(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()
