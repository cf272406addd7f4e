"""LISTEN and NOTIFY: hints between processes, on a connection of their own, rebuilt when it breaks."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable

import psycopg

from tidemill.stores.sql.postgres.wire import Connection, readable

_RECONNECT = 1.0
_ROOM = 7_000  # a payload holds 8,000 bytes


def payloads(topics: frozenset[str]) -> list[str]:
    """Topics as few messages as fit."""
    messages: list[list[str]] = [[]]
    size = 0
    for topic in sorted(topics):
        cost = len(json.dumps(topic)) + 1
        if size + cost > _ROOM and messages[-1]:
            messages.append([])
            size = 0
        messages[-1].append(topic)
        size += cost
    return [json.dumps(message, separators=(",", ":")) for message in messages if message]


class PostgresListener:
    """Hears notifications of one channel. After every reconnect it reports ``change``: something may have been missed."""

    def __init__(
        self, connect: Callable[[], Connection], channel: str, on_close: Callable[[PostgresListener], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._on_close = on_close
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._bell, self._ear = socket.socketpair()
        self._connection: Connection | None = None
        with contextlib.suppress(psycopg.Error):
            self._open()

    def _open(self) -> Connection:
        connection = self._connect()
        connection.execute(f'listen "{self._channel}"')
        self._connection = connection
        return connection

    def wait(self, timeout: float) -> frozenset[str]:
        with self._lock:
            if self._closed.is_set():
                return frozenset()
            try:
                if self._connection is None:
                    self._open()
                    return frozenset({"change"})
                return self._read(self._connection, timeout)
            except psycopg.Error:
                self._drop()
                self._closed.wait(min(timeout, _RECONNECT))
                return frozenset()

    def _read(self, connection: Connection, timeout: float) -> frozenset[str]:
        topics = _drain(connection)
        if not topics:
            readable([connection.fileno(), self._ear.fileno()], timeout)
            topics = frozenset() if self._closed.is_set() else _drain(connection)
        return topics

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Wakes whoever waits, and lets the connection go."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._pid == os.getpid():  # in a fork both belong to the parent
            self._bell.send(b"!")
            with self._lock:
                self._drop()
                self._bell.close()
                self._ear.close()
        self._on_close(self)


class DeafListener:
    """Where there is no LISTEN (a pooler in transaction mode, or ?notify=0): only the caller's own poll wakes it."""

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
    """Everything heard so far, without waiting."""
    return frozenset(topic for note in connection.notifies(timeout=0) for topic in _topics(note.payload))


def _topics(payload: str) -> list[str]:
    """What a notification says; whatever is not ours means that something changed."""
    try:
        topics = json.loads(payload)
    except ValueError:
        return ["change"]
    return [topic for topic in topics if isinstance(topic, str)] if isinstance(topics, list) else ["change"]
