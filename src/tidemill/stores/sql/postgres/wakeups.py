"""Wake-ups between processes with LISTEN and NOTIFY, on a dedicated connection."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable

import psycopg

from tidemill.stores.sql.postgres.prepared_connection import Connection, readable
from tidemill.stores.wakeup_messages import CHANGE, RECONNECTED, read_topics, write_topics

_RECONNECT = 1.0
_STAND_BY = 0.25  # seconds between two checks while an event loop watches the socket
_ROOM = 7_000  # a payload holds 8,000 bytes


def payloads(topics: frozenset[str]) -> list[str]:
    """The topics in as few messages as possible."""
    messages: list[list[str]] = [[]]
    size = 0
    for topic in sorted(topics):
        cost = len(json.dumps(topic)) + 1
        if size + cost > _ROOM and messages[-1]:
            messages.append([])
            size = 0
        messages[-1].append(topic)
        size += cost
    return [write_topics(message) for message in messages if message]


class PostgresListener:
    """A subscription to one channel.

    After every reconnect it reports ``change``, because it may have missed a notification, and ``reconnected``, because it may
    be connected to another database. An event loop can borrow its socket; ``wait`` then only returns from time to time.
    """

    def __init__(
        self, connect: Callable[[], Connection], channel: str, on_close: Callable[[PostgresListener], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._on_close = on_close
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._lent: Connection | None = None
        self._closed = threading.Event()
        self._bell, self._listener = socket.socketpair()
        self._connection: Connection | None = None
        with contextlib.suppress(psycopg.Error):
            self._open()

    def _open(self) -> Connection:
        connection = self._connect()
        try:
            connection.execute(f'listen "{self._channel}"')
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def wait(self, timeout: float) -> frozenset[str]:
        with self._lock:
            if self._closed.is_set():
                return frozenset()
            try:
                if self._connection is None:
                    self._open()
                    return frozenset({CHANGE, RECONNECTED})
                return self._read(self._connection, timeout)
            except psycopg.Error:
                self._drop()
                self._closed.wait(min(timeout, _RECONNECT))
                return frozenset()

    def _read(self, connection: Connection, timeout: float) -> frozenset[str]:
        topics = self._drained(connection)
        if not topics:
            if self._lent is connection:
                readable([self._listener.fileno()], min(timeout, _STAND_BY))
            else:
                readable([connection.fileno(), self._listener.fileno()], timeout)
            topics = frozenset() if self._closed.is_set() else self._drained(connection)
        return topics

    def _drained(self, connection: Connection) -> frozenset[str]:
        with self._reading:
            return _drain(connection)

    def _drop(self) -> None:
        with self._reading:
            connection, self._connection, self._lent = self._connection, None, None
            if connection is not None:
                connection.close()

    # For an event loop that watches the socket -----------------------------------------------------------------------------

    def lend(self) -> int | None:
        """A duplicate descriptor that becomes readable when a notification arrives; None while there is no connection."""
        with self._reading:
            self._lent = self._connection
            return None if self._lent is None else os.dup(self._lent.fileno())

    def hear(self) -> frozenset[str]:
        """The topics received so far; raises an error if the connection whose socket was lent is gone."""
        with self._reading:
            if self._lent is None or self._lent is not self._connection:
                raise psycopg.OperationalError("the connection whose socket was lent is closed")
            return _drain(self._lent)

    def take_back(self) -> None:
        """End the loan of the socket."""
        with self._reading:
            self._lent = None

    def close(self) -> None:
        """Wake a waiting thread and close the connection."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._pid == os.getpid():  # in a fork both belong to the parent
            self._bell.send(b"!")
            with self._lock:
                self._drop()
                self._bell.close()
                self._listener.close()
        self._on_close(self)


class DeafListener:
    """A listener without LISTEN (a pooler in transaction mode, or ?notify=0): its caller depends on polling."""

    def __init__(self, on_close: Callable[[DeafListener], None]) -> None:
        self._closed = threading.Event()
        self._on_close = on_close

    def wait(self, timeout: float) -> frozenset[str]:
        self._closed.wait(timeout)
        return frozenset()

    def close(self) -> None:
        self._closed.set()
        self._on_close(self)


def _drain(connection: Connection) -> frozenset[str]:
    """All topics received so far, without waiting."""
    pgconn, topics = connection.pgconn, set[str]()
    pgconn.consume_input()
    while (note := pgconn.notifies()) is not None:
        topics |= read_topics(note.extra.decode(errors="replace"))
    return frozenset(topics)
