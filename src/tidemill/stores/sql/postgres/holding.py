"""Holds of a PostgreSQL database: each is an advisory lock on a session of its own, and ends with that session.

Behind a pooler the session is not ours, so there is none. It must not know what is done under a hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from weakref import WeakSet

import psycopg

from tidemill.stores.sql.postgres.wire import Connection, readable

_LOOKS = 16  # how much a server may say unasked before no more of it is read

_TRY = """
select pg_try_advisory_lock(%s), set_config('idle_session_timeout', '0', false),
       set_config('tcp_keepalives_idle', '3', false), set_config('tcp_keepalives_interval', '2', false),
       set_config('tcp_keepalives_count', '2', false), set_config('tcp_user_timeout', '8000', false)
"""
"""The server is to notice within ten seconds that a holder's machine is gone; but a holder may be silent for days."""


def lock_key(schema: str, name: str) -> int:
    """The number of a hold among the advisory locks of the database."""
    digest = hashlib.sha256(f"tidemill hold {schema} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def is_free(connection: Connection, key: int) -> bool:
    """Whether nobody holds it just now. So those who would lose make no connection for every try."""
    return connection.execute("select pg_try_advisory_xact_lock(%s)", (key,)).fetchone() == (True,)


def take(
    connect: Callable[[], Connection], key: int, forget: Callable[[PostgresHold], None]
) -> PostgresHold | None:
    """The lock, on a new connection; None while anybody has it."""
    connection = connect()
    try:
        row = connection.execute(_TRY, (key,)).fetchone()
        if row is not None and row[0]:
            return PostgresHold(connection, key, forget)
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


class PostgresHold:
    """An advisory lock, and the connection it lives on."""

    def __init__(self, connection: Connection, key: int, forget: Callable[[PostgresHold], None]) -> None:
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
            # Unlocked first: a session that is only closed keeps its locks until the server has noticed.
            with contextlib.suppress(psycopg.Error):
                connection.execute("select pg_advisory_unlock(%s)", (self._key,))
            connection.close()
        self._forget(self)

    def leave_to_parent(self) -> None:
        """In a fork: let go of the socket without a word to the server, which would take it for the parent's.

        A socket that stayed open here would keep the session alive when the parent dies.
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
    """Whether the session is there, as far as can be told without asking: a server that ends one closes its socket."""
    try:
        for _ in range(_LOOKS):
            if not readable([connection.fileno()], 0):
                break
            connection.pgconn.consume_input()  # an error when the connection is closed
            connection.pgconn.notifies()  # the rest is news about settings, and is passed over
    except psycopg.Error:
        return False
    return True


_living: WeakSet[PostgresHold] = WeakSet()


def _leave_all_to_parent() -> None:
    for hold in list(_living):
        hold.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
