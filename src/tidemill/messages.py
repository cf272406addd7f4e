"""Methods of an app that send signals to jobs and emit events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.client.signals import Signals
    from tidemill.domain.signals import EmittedEvent


class MessageSender:
    """Signals and events of an app. The module about signals is imported on first use."""

    _client: Client

    @property
    def signals(self) -> Signals:
        """Signals to jobs, events, and questions to people: send, list, emit, events."""
        from tidemill.client.signals import Signals

        return Signals(self._client)

    def signal(
        self,
        job: Any,
        name: str,
        payload: object = None,
        key: str | None = None,
        *,
        connection: object | None = None,
    ) -> bool:
        """Send a signal to a job: ``app.signal(job, "approved", {"by": "ada"})``. Returns False for a repeated key.

        The job takes it with ``ctx.wait_for("approved")``, also if it waits only later. ``key`` makes it idempotent. With
        ``connection``, the signal is part of the transaction that is open on your own connection.
        """
        return self.signals.send(job, name, payload, key=key, connection=connection)

    async def asignal(
        self,
        job: Any,
        name: str,
        payload: object = None,
        key: str | None = None,
        *,
        connection: object | None = None,
    ) -> bool:
        """Async version of ``signal``."""
        return await self.signals.asend(job, name, payload, key=key, connection=connection)

    def emit(
        self, name: str, payload: object = None, *, match: object = "", id: str | UUID | None = None
    ) -> EmittedEvent | None:
        """Emit an event to all jobs that wait for its name: ``app.emit("order.paid", {"id": 42}, match=42)``.

        A job that waits for a ``match`` sees only events with the same one. ``id`` makes it idempotent; the answer is None
        if an event with this id is stored already.
        """
        return self.signals.emit(name, payload, match=match, id=id)

    async def aemit(
        self, name: str, payload: object = None, *, match: object = "", id: str | UUID | None = None
    ) -> EmittedEvent | None:
        """Async version of ``emit``."""
        return await self.signals.aemit(name, payload, match=match, id=id)
