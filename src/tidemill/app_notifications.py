"""The events, alerts and notifications of an app."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

from tidemill.client.notifications import Alerts, Notifications
from tidemill.client.subscriptions import Subscriptions
from tidemill.delivery.background import BackgroundDuty, BackgroundThread
from tidemill.delivery.durable import DurableHandler, check_subscription_name
from tidemill.delivery.heartbeats import HeartbeatDuty
from tidemill.delivery.live import LiveSubscription
from tidemill.delivery.notification_duty import ATTEMPTS, Asked, NotificationDuty, NotificationSources
from tidemill.delivery.subscriber import SubscriptionDuty
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.notifications import QUEUE, TASK
from tidemill.domain.retry import Exponential
from tidemill.domain.subscriptions import StoredSubscription
from tidemill.errors import BadSettings
from tidemill.tasks.events import Subscriber, Subscription
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.task import Declared, declare

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.client.stats.api import StatsApi
    from tidemill.clock import Clock
    from tidemill.stores.base import Store

_POLICY = Exponential(max_attempts=ATTEMPTS, wait=timedelta(seconds=10), cap=timedelta(hours=1))


class NotificationApp:
    """Base class of apps: their events, alerts and notifications."""

    _client: Client
    clock: Clock
    stats: StatsApi

    @property
    def store(self) -> Store:
        raise NotImplementedError

    def _bind_notifications(self) -> None:
        """Create the APIs of the store that the client addresses, and the task that sends notifications."""
        self.alerts = Alerts(self._client, self._alert_duty)
        self.notifications = Notifications(self._client)
        self.subscriptions = Subscriptions(self._client, self._delivering)
        if self._client.delivery.sends:
            self._check_all_channels()
            from tidemill.delivery.notification_task import notification_sender

            options = TaskOptions(name=TASK, queue=QUEUE, retry=_POLICY, timeout=timedelta(minutes=2))
            self._client.registry.add_own(declare(notification_sender(self._client), options))

    @overload
    def on(
        self, event: str, handler: Subscriber, *, durable: str | None = None, everywhere: bool = False
    ) -> Subscription: ...

    @overload
    def on(
        self, event: str, handler: None = None, *, durable: str | None = None, everywhere: bool = False
    ) -> Callable[[Subscriber], Subscriber]: ...

    def on(
        self,
        event: str,
        handler: Subscriber | None = None,
        *,
        durable: str | None = None,
        everywhere: bool = False,
    ) -> Any:
        """Call the handler with every matching event: ``app.on("job.finished", notify)``, or ``@app.on("job.finished")``.

        Patterns work like file name patterns. The subscription ends with ``close()``, or with its ``with`` block.

        By default the events are those of this process. With ``everywhere`` they are those of all processes that use
        the store, from now on. ``durable`` names a subscription that the store keeps: workers of this app call the
        handler at least once for every event, in order for each job, also for events that happened while none ran.
        """
        if handler is None:

            def add(given: Subscriber) -> Subscriber:
                self.on(event, given, durable=durable, everywhere=everywhere)
                return given

            return add
        if durable is not None:
            if everywhere:
                raise BadSettings(
                    "durable subscriptions receive the events of all processes; omit everywhere"
                )
            return self._subscribe_durably(event, handler, check_subscription_name(durable))
        if everywhere:
            live = LiveSubscription(self.store, self.clock, [event], handler)
            live.start()
            self._client.live.add(live)
            return _ClosingSubscription(live)
        return self._client.events.subscribe(event, handler)

    def forward(self, event: str, to: str, *, durable: str) -> Subscription:
        """Publish every matching event to another system: ``app.forward("job.*", "amqp://host/vhost", durable="erp")``.

        ``to`` is a topic exchange of RabbitMQ (``amqp://host/vhost?exchange=tidemill.events``) or a Redis stream
        (``redis://host/0?stream=tidemill.events&maxlen=100000``). ``durable`` names the subscription, which the store keeps: workers of
        this app publish each event at least once, with the same id each time, and in order for each job.
        """
        from tidemill.delivery.event_publishers import open_publisher

        return self._subscribe_durably(event, open_publisher(to), check_subscription_name(durable))

    def _subscribe_durably(self, event: str, handler: Subscriber, name: str) -> Subscription:
        declared = self._client.durable.get(name)
        if declared is not None and declared.handler is not handler:
            raise BadSettings(f"the durable subscription {name!r} has a handler already; choose another name")
        patterns = (*(declared.subscription.patterns if declared is not None else ()), event)
        self._client.durable[name] = DurableHandler(
            StoredSubscription(name, tuple(dict.fromkeys(patterns))), handler
        )
        self._client.declare_durable()

        def close() -> None:
            self._client.durable.pop(name, None)
            self._client.declare_durable()

        return Subscription(close)

    # Background duties ---------------------------------------------------------------------------------------------------

    def background_thread(self) -> BackgroundThread | None:
        """Return the thread that delivers events, evaluates alerts and sends notifications in a worker; None without any duty."""
        every = self._client.delivery.alerts_every
        duties = self._delivering()
        if every is not None:
            duties = [*duties, self._alert_duty(every)]
        return BackgroundThread(duties) if duties else None

    def _delivering(self) -> Sequence[BackgroundDuty]:
        store, process = self.store, f"{socket.gethostname()}-{os.getpid()}"
        settings = self._client.delivery
        self._check_all_channels()
        duties: list[BackgroundDuty] = [
            SubscriptionDuty(store, self.clock, subscription, handler, process)
            for subscription, handler in self._client.durable.values()
        ]
        duties.append(HeartbeatDuty(store, self.clock, settings.networks, process))
        if settings.sends:
            sources = NotificationSources(self._owner_of, self._questions_of, self._notify_of, self._notified)
            duties.append(NotificationDuty(store, self.clock, settings, sources, process))
        return duties

    def _alert_duty(self, every: timedelta = timedelta(minutes=1)) -> BackgroundDuty:
        from tidemill.delivery.alert_duty import AlertDuty

        process = f"{socket.gethostname()}-{os.getpid()}"
        return AlertDuty(
            self.store, self.clock, lambda: self.stats.alerts(tenant=ALL_TENANTS), process, every=every
        )

    def _owner_of(self, task: str) -> str | None:
        registry = self._client.registry
        return registry.get(task).options.owner if task in registry else None

    def _notify_of(self, task: str) -> Mapping[str, Sequence[str]]:
        registry = self._client.registry
        return registry.get(task).options.notify if task in registry else {}

    def _notified(self) -> Mapping[str, Mapping[str, Sequence[str]]]:
        # Jobs stored under an earlier name of a task have events of that name.
        return {
            name: task.options.notify
            for task in self._client.registry
            if task.options.notify
            for name in self._client.registry.names_of(task)
        }

    def _check_declared(self, task: Declared) -> None:
        """Refuse unknown channels at declaration. Without any channel yet, ``configure`` may add them; workers check again."""
        if self._client.delivery.sends:
            self._check_channels(task)

    def _check_all_channels(self) -> None:
        for task in self._client.registry:
            self._check_channels(task)

    def _check_channels(self, task: Declared) -> None:
        """Refuse a task that notifies channels or owners which this app does not have."""
        settings = self._client.delivery
        names = {name for channels in task.options.notify.values() for name in channels}
        unknown = sorted(name for name in names if not settings.has(name))
        if unknown:
            known = ", ".join([*settings.channels, *settings.owners]) or "none"
            raise BadSettings(
                f"task {task.name}: notify names {unknown[0]!r}, which is no channel and no owner;"
                f" App(notify=…, owners=…) has {known}",
                option="notify",
            )

    def _questions_of(self, id: UUID) -> Sequence[Asked]:
        from tidemill.client.signals import Signals

        questions = Signals(self._client).questions(job=id, tenant=ALL_TENANTS)
        return [Asked(question.to, question.message or question.title) for question in questions]


class _ClosingSubscription(Subscription):
    """A live subscription, kept alive by its handle and closed with it."""

    def __init__(self, live: LiveSubscription) -> None:
        super().__init__(live.close)
        self.live = live
