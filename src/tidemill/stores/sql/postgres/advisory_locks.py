"""Holds in PostgreSQL: advisory locks, each on its own session.

A hold ends with its session. Behind a pooler the session is shared, so there are no holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from weakref import WeakSet

import psycopg

from tidemill.stores.sql.postgres.prepared_connection import Connection, readable

_LOOKS = 16  # maximum reads of unsolicited messages from the server

_TRY = """
select pg_try_advisory_lock(%s), set_config('idle_session_timeout', '0', false),
       set_config('tcp_keepalives_idle', '3', false), set_config('tcp_keepalives_interval', '2', false),
       set_config('tcp_keepalives_count', '2', false), set_config('tcp_user_timeout', '8000', false)
"""
"""The server should notice within ten seconds that a holder's machine is down; but an idle holder may be silent for days."""


def lock_key(schema: str, name: str) -> int:
    """The advisory lock number of a hold."""
    digest = hashlib.sha256(f"tidemill hold {schema} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def is_free(connection: Connection, key: int) -> bool:
    """Whether the lock is free. Checked first, so that losing contenders need not open a connection for every attempt."""
    return connection.execute("select pg_try_advisory_xact_lock(%s)", (key,)).fetchone() == (True,)


def take(
    connect: Callable[[], Connection], key: int, forget: Callable[[AdvisoryLock], None]
) -> AdvisoryLock | None:
    """The lock, on a new connection; None while it is held."""
    connection = connect()
    try:
        row = connection.execute(_TRY, (key,)).fetchone()
        if row is not None and row[0]:
            return AdvisoryLock(connection, key, forget)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


class AdvisoryLock:
    """An advisory lock and its connection."""

    def __init__(self, connection: Connection, key: int, forget: Callable[[AdvisoryLock], None]) -> None:
        self._connection: Connection | None = connection
        self._key = key
        self._forget = forget
        self._looking = threading.Lock()
        _living.add(self)

    def held(self) -> bool:
        with self._looking:
            return self._connection is not None and _lives(self._connection)

    def release(self) -> None:
        with self._looking:
            connection, self._connection = self._connection, None
        if connection is not None:
            # Unlocked first: a session that is only closed keeps its locks until the server notices.
            with contextlib.suppress(psycopg.Error):
                connection.execute("select pg_advisory_unlock(%s)", (self._key,))
            connection.close()
        self._forget(self)

    def leave_to_parent(self) -> None:
        """In a forked process: close the socket without a message to the server, which would apply it to the parent's session.

        A socket that stayed open here would keep the session alive after the parent dies.
        """
        connection, self._connection = self._connection, None
        self._looking = threading.Lock()
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, connection.fileno(), inheritable=False)
                os.close(nowhere)
                connection.close()


def _lives(connection: Connection) -> bool:
    """Whether the session is alive, as far as the socket shows: a server that ends a session closes its socket."""
    try:
        for _ in range(_LOOKS):
            if not readable([connection.fileno()], 0):
                break
            connection.pgconn.consume_input()  # raises if the connection is closed
            connection.pgconn.notifies()  # other messages are about settings and are ignored
    except psycopg.Error:
        return False
    return True


_living: WeakSet[AdvisoryLock] = WeakSet()


def _leave_all_to_parent() -> None:
    for hold in list(_living):
        hold.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
