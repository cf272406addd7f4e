"""Methods of an app that send signals to jobs, emit events, and take messages from other systems."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from tidemill.domain.durations import Duration
from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.client.enqueue.bound_task import BoundTask
    from tidemill.client.signals import Signals
    from tidemill.delivery.intake import Arguments
    from tidemill.domain.signals import EmittedEvent


class MessageSender:
    """Signals, events and incoming messages of an app. Their modules are imported on first use."""

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

    def intake(
        self,
        queue: str,
        task: BoundTask[..., Any],
        *,
        broker: str,
        dead_letters: str | None = None,
        prefetch: int = 100,
        remember: Duration = timedelta(days=7),
        arguments: Arguments | None = None,
        id_header: str | None = None,
    ) -> None:
        """Let messages of a RabbitMQ queue become jobs: ``app.intake("orders", charge, broker="amqp://host/vhost")``.

        ``tidemill intake`` reads the queue. The body of a message is a JSON object with the arguments of the task, or ``arguments``
        returns them for an ``IntakeMessage``. Each message becomes one job, also if it is delivered again within ``remember``: its
        ``message_id`` (or the header ``id_header``) is the unique key. It is acknowledged when the job is committed. A message that can
        never become a job goes to the queue ``dead_letters``, by default ``orders.dead``, with the reason in a header.
        """
        from tidemill.delivery.intake import intake_rule

        if any(rule.queue == queue and rule.url == broker for rule in self._client.intakes):
            raise BadSettings(f"queue {queue!r} of this broker has an intake already", setting="queue")
        rule = intake_rule(
            queue,
            task,
            broker=broker,
            dead_letters=dead_letters,
            prefetch=prefetch,
            remember=remember,
            arguments=arguments,
            id_header=id_header,
        )
        self._client.intakes.append(rule)
