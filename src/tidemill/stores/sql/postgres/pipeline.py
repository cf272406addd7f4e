"""Statements sent ahead on one connection, in libpq's pipeline mode.

Each is a separate transaction. The connection comes from the pool and returns to it when nothing is in flight. If it breaks, the
outcome of all unanswered statements is unknown, and each of their answers reports that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import psycopg

from tidemill.stores.sql.driver import QueryCall, Row
from tidemill.stores.sql.postgres.failures import RETRIED, UNPACKABLE, translate
from tidemill.stores.sql.postgres.pool import Pool
from tidemill.stores.sql.postgres.prepared_connection import Connection
from tidemill.stores.sql.postgres.statements import Statement, Statements


class PostgresPipeline:
    """A channel for one thread. ``again`` runs a call the ordinary way, after a failure that is safe to retry."""

    def __init__(
        self, pool: Pool, statements: Statements, again: Callable[[QueryCall], list[Row]], url: str
    ) -> None:
        self._pool, self._statements, self._again, self._url = pool, statements, again, url
        self._sent: deque[tuple[Statement, QueryCall]] = deque()
        self._connection: Connection | None = None

    def send(self, call: QueryCall) -> bool:
        """Send a call; False if no connection is available, or this one has not prepared the statement yet."""
        statement = self._statements.get(call.name, call.takes, call.flags)
        try:
            parameters = statement.pack(call.takes, call.items)
            connection = self._connection or self._pool.spare()
            if connection is None:
                return False
            if self._connection is None:
                self._connection = connection
                self._learn(connection, statement)
            elif not connection.knows(statement):
                return False
        except (psycopg.Error, *UNPACKABLE) as error:
            raise translate(error, self._url) from error
        self._sent.append((statement, call))
        connection.post(statement, parameters)
        return True

    def _learn(self, connection: Connection, statement: Statement) -> None:
        try:
            connection.learn(statement)
        except BaseException:
            self._let_go()
            raise

    @property
    def file(self) -> int:
        """The socket that answers are read from."""
        assert self._connection is not None
        return self._connection.fileno()

    def answered(self) -> bool:
        """Whether the oldest call has its answer, or can no longer get one."""
        return self._connection is not None and self._connection.answered()

    def receive(self) -> list[Row]:
        """The rows of the oldest call."""
        statement, call = self._sent.popleft()
        assert self._connection is not None
        try:
            return self._connection.collect(statement, last=not self._sent)
        except RETRIED:  # nothing was changed
            return self._again(call)
        except psycopg.Error as error:
            raise translate(error, self._url) from error
        finally:
            if not self._sent:
                self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.give_back(connection)
