"""Completion of jobs on users' connections, as an object that the engine receives.

The engine runs the jobs but must not import the client.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.client.own_connection.dispatch import afinish_on, finish_on
from tidemill.client.own_connection.writes import PendingOutput
from tidemill.domain.job import Finish
from tidemill.stores.base import Store


class OwnConnections:
    """Completes jobs of one store."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def finish(self, connection: object, finish: Finish, words: PendingOutput) -> bool:
        """Complete a held job inside the user's transaction; return False, writing nothing, if it is no longer held."""
        return finish_on(connection, self._store(), finish, words)

    async def afinish(self, connection: object, finish: Finish, words: PendingOutput) -> bool:
        """Asynchronous twin of ``finish``."""
        return await afinish_on(connection, self._store(), finish, words)
