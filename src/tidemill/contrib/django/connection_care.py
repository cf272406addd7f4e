"""Replacement of lost database connections before each job."""

from __future__ import annotations

from types import TracebackType

from asgiref.sync import sync_to_async
from django.db import connections

from tidemill.domain.job import JobRow


class ConnectionCare:
    """Context manager around one execution, for functions and coroutines.

    Django checks its connections at the start and end of a request, and a worker has no requests. A connection that the
    server has closed between two jobs is found with a query, because it fails only when it is used.
    """

    def __init__(self, job: JobRow) -> None:
        pass

    def __enter__(self) -> None:
        close_lost_connections()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        close_lost_connections(asks=False)

    async def __aenter__(self) -> None:
        # A coroutine uses the ORM in the thread of ``sync_to_async``.
        await sync_to_async(close_lost_connections)()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await sync_to_async(close_lost_connections)(asks=False)


def close_lost_connections(*, asks: bool = True) -> None:
    """Close this thread's connections that are obsolete or broken; Django opens them again on demand.

    A connection inside ``atomic()`` is left alone: in tests, a job runs in the transaction of the test.
    """
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            continue
        connection.close_if_unusable_or_obsolete()
        if asks and connection.connection is not None and not connection.is_usable():
            connection.close()
