"""Adapter for ``sqlite3.Connection``, also that of pysqlite3."""

from __future__ import annotations

from typing import Any

from tidemill.client.own_connection.sansio import UserStatement
from tidemill.client.own_connection.sqlite import joins
from tidemill.errors import UsageError
from tidemill.stores.sql.driver import Row


class Sqlite3Adapter:
    """A user's sqlite3 connection, with any row_factory and any transaction mode."""

    dialect, style, key = "sqlite", "marks", None

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def ready(self) -> None:
        if not joins(self._connection):
            raise UsageError(
                "this sqlite3.Connection commits by itself and has no transaction open, so the job could not be rolled back;"
                ' open one first: connection.execute("begin immediate")'
            )

    def execute(self, line: UserStatement) -> list[Row]:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        try:
            (cursor.executemany if line.many else cursor.execute)(line.sql, line.values)
            rows: list[Row] = [] if cursor.description is None else cursor.fetchall()
            return rows
        finally:
            cursor.close()
