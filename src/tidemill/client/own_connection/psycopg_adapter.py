"""Adapters for psycopg connections, sync and async, also from a pool.

The adapters create their own cursors, so the connection's row_factory, cursor_factory and adapters do not affect the
results and stay unchanged. No statement is prepared in the user's session.
"""

from __future__ import annotations

from typing import Any

from tidemill.client.own_connection.sansio import UserStatement
from tidemill.errors import UsageError
from tidemill.stores.sql.driver import Row


class _PsycopgAdapter:
    """Base class of both adapters."""

    dialect = "postgres"
    opening = "with connection.transaction(): ..."

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.key: object = connection

    @property
    def style(self) -> str:
        # Packed text is UTF-8. For a connection with another encoding, psycopg encodes plain lists.
        return "packed" if self._connection.info.encoding == "utf-8" else "named"

    def ready(self) -> None:
        from psycopg.pq import TransactionStatus

        status = self._connection.info.transaction_status
        if status == TransactionStatus.INERROR:
            raise UsageError(
                "an earlier statement of your transaction has failed; roll it back and start again"
            )
        if self._connection.autocommit and status == TransactionStatus.IDLE:
            raise UsageError(
                f"this psycopg.{type(self._connection).__name__} is in autocommit and has no transaction open, so the job could"
                f" not be taken back; open one first: {self.opening}"
            )

    def _adapted(self, cursor: Any) -> Any:
        from tidemill.stores.sql.postgres.arrays import DUMPERS

        for kind, dumper in DUMPERS:
            cursor.adapters.register_dumper(kind, dumper)  # registered for this cursor only
        return cursor


class PsycopgAdapter(_PsycopgAdapter):
    """A user's ``psycopg.Connection``."""

    def execute(self, line: UserStatement) -> list[Row]:
        from psycopg import Cursor
        from psycopg.rows import tuple_row

        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            self._adapted(cursor).execute(line.sql, line.values, prepare=False, binary=True)
            return cursor.fetchall() if line.gives else []


class AsyncPsycopgAdapter(_PsycopgAdapter):
    """A user's ``psycopg.AsyncConnection``."""

    opening = "async with connection.transaction(): ..."

    async def execute(self, line: UserStatement) -> list[Row]:
        from psycopg import AsyncCursor
        from psycopg.rows import tuple_row

        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await self._adapted(cursor).execute(line.sql, line.values, prepare=False, binary=True)
            return await cursor.fetchall() if line.gives else []
