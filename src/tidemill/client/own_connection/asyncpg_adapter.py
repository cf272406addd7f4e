"""Adapter for ``asyncpg.Connection``, also from a pool."""

from __future__ import annotations

from typing import Any

from tidemill.client.own_connection.sansio import UserStatement
from tidemill.errors import UsageError
from tidemill.stores.sql.driver import Row


class AsyncpgAdapter:
    """A user's asyncpg connection. It has no transaction unless the user opens one."""

    dialect, style = "postgres", "numbered"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.key: object = getattr(connection, "_con", connection)  # the connection behind a pool's proxy

    def ready(self) -> None:
        if not self._connection.is_in_transaction():
            raise UsageError(
                "this asyncpg.Connection has no transaction open, so the job could not be rolled back; open one first:"
                " async with connection.transaction(): ..."
            )

    async def execute(self, line: UserStatement) -> list[Row]:
        return [tuple(record) for record in await self._connection.fetch(line.sql, *line.values)]
