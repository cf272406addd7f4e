"""``app.alerts`` and ``app.notifications``: alerts with their history, and messages to people and systems."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from tidemill.client._base import StoreApi, async_twin
from tidemill.client.access import note, who
from tidemill.client.enqueue.writes import insert_new, key_taken
from tidemill.client.jobs.handle import Job
from tidemill.delivery.background import BackgroundDuty, perform_all
from tidemill.delivery.notification_duty import notification_job
from tidemill.domain.alert_history import StoredAlert
from tidemill.domain.bounds import check_text
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.notifications import QUEUE, TASK, Notification
from tidemill.domain.states import JobState
from tidemill.errors import AlertNotFound, BadFilter, BadSettings, PermanentError, Retry, UsageError
from tidemill.ids import new_id

if TYPE_CHECKING:
    from tidemill.client.core import Client
    from tidemill.delivery.channels import NotificationChannel

_MOST_PAGES = 20
"""Pages that a list reads for the notifications of one channel."""

_QUIET = frozenset({JobState.COMPLETED, JobState.PENDING, JobState.CLAIMED, JobState.RUNNING})


class ChannelInfo(NamedTuple):
    """A channel or an owner. The address is not shown, because it may contain a secret."""

    name: str
    kind: str  #: webhook, mail or apprise


class ChannelTest(NamedTuple):
    """The outcome of a test message: the receiver's answer, or the error."""

    name: str
    kind: str
    answer: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class SentNotification:
    """A notification with its recipient and its outcome. ``status`` is that of its job; ``answer`` is what the receiver answered."""

    id: UUID
    channel: str
    to: str | None
    kind: str
    title: str
    text: str
    link: str | None
    count: int
    rule: str
    items: tuple[dict[str, Any], ...]
    status: str
    attempts: int
    created_at: datetime
    sent_at: datetime | None
    answer: str | None
    error: str | None


class Notifications(StoreApi):
    """Notifications of a store. Every method has an asynchronous twin with the prefix ``a``."""

    def list(
        self, *, status: str | None = None, channel: str | None = None, limit: int = 100
    ) -> Sequence[SentNotification]:
        """Return notifications, the newest first."""
        states = frozenset() if status is None else frozenset({_state(status)})
        # The index of waiting jobs begins with the queue: without it, the search would read the whole backlog.
        where = JobFilter(
            ALL_TENANTS, tasks=frozenset({TASK}), queues=frozenset({QUEUE}), states=states, rare=True
        )
        wanted = min(limit, 1000)
        found: list[SentNotification] = []
        after: str | None = None
        # The store cannot filter by an argument of the job, so the pages are read until enough are found.
        for _ in range(_MOST_PAGES):
            page = self._store.jobs(where, sort=Sort.NEWEST, limit=wanted, after=after)
            notifications = [_sent(job) for job in page.items]
            found += [one for one in notifications if channel in (None, one.channel)]
            after = page.next
            if after is None or len(found) >= wanted:
                break
        return found[:wanted]

    alist = async_twin(list)  # noqa: A003  (the method above)

    def channels(self) -> Sequence[ChannelInfo]:
        """Return the channels of this app, and its owners as ``owner:NAME``."""
        settings = self._client.delivery
        rows = [ChannelInfo(name, channel.kind) for name, channel in settings.channels.items()]
        rows += [ChannelInfo(f"owner:{name}", channel.kind) for name, channel in settings.owners.items()]
        return rows

    achannels = async_twin(channels)

    def send(
        self, channel: str, title: str, text: str = "", *, link: str | None = None, to: str | None = None
    ) -> Job[str]:
        """Send a message of your own, and return its job: ``app.notifications.send("mail", "Your export is ready", link=…)``.

        ``to`` replaces the recipient of a mail channel.
        """
        self._channel(channel)
        for name, value in (("title", title), ("link", link)):
            check_text(name, value)
        _check_recipient(to)
        job = notification_job(Notification(channel, "message", title, text, 1, "", [], link), to)
        insert_new(self._store, [job], key_taken, self._pin)
        self._tell([f"ready:{job.queue}"])
        return Job(self._client, job)

    asend = async_twin(send)

    def test(self, *channels: str, to: str | None = None) -> Sequence[ChannelTest]:
        """Send a test message now, in this process and without retries, through the channels or all of ``App(notify=…)``.

        ``to`` replaces the recipient of mail channels.
        """
        _check_recipient(to)
        names = channels or tuple(self._client.delivery.channels)
        targets = [(name, self._channel(name)) for name in names]
        return [self._tested(name, channel, to) for name, channel in targets]

    atest = async_twin(test)

    def _tested(self, name: str, channel: NotificationChannel, to: str | None) -> ChannelTest:
        # Few processes send, and the module takes long to import.
        from tidemill.delivery.channels import Message

        title, text = "A test of Tidemill", f"The channel {name} works."
        data = {"title": title, "text": text, "count": 1, "items": [], "link": None, "rule": ""}
        message = Message(
            f"msg_{new_id().hex}", self._client.clock.now(), "test", title, text, None, to, data
        )
        try:
            return ChannelTest(name, channel.kind, channel.send(message), None)
        except Retry as signal:
            return ChannelTest(name, channel.kind, None, signal.reason or "the receiver is busy")
        except PermanentError as error:
            return ChannelTest(name, channel.kind, None, str(error))
        except Exception as error:  # noqa: BLE001  (every error of a channel is the result of its test)
            return ChannelTest(name, channel.kind, None, f"{type(error).__name__}: {error}")

    def _channel(self, name: str) -> NotificationChannel:
        channel = self._client.delivery.channel(name)
        if channel is None:
            names = ", ".join(info.name for info in self.channels()) or "none"
            raise BadSettings(f"there is no channel {name!r}; App(notify=…) has {names}", channel=name)
        return channel


class Alerts(StoreApi):
    """The alerts that the workers of a store have opened. Every method has an asynchronous twin with the prefix ``a``."""

    def __init__(self, client: Client, duty: Callable[[], BackgroundDuty] | None = None) -> None:
        super().__init__(client)
        self._duty = duty

    def evaluate(self) -> Sequence[StoredAlert]:
        """Evaluate the rules now, store the result, and return the open alerts; a worker does this every minute.

        Nothing changes while another process evaluates them.
        """
        if self._duty is None:
            raise UsageError("alerts are evaluated with the settings of an app; name one")
        perform_all([self._duty()])
        return self.list()

    aevaluate = async_twin(evaluate)

    def list(self, *, limit: int = 100) -> Sequence[StoredAlert]:
        """Return the open alerts, the newest first."""
        return self._store.stored_alerts(recovered=False, limit=limit)

    alist = async_twin(list)  # noqa: A003  (the method above)

    def history(self, *, before: datetime | None = None, limit: int = 100) -> Sequence[StoredAlert]:
        """Return all alerts of the last 90 days, open ones included, the newest first; only those opened ``before``."""
        return self._store.stored_alerts(before=before, limit=limit)

    ahistory = async_twin(history)

    def acknowledge(self, id: UUID | str) -> StoredAlert:
        """Mark an open alert as acknowledged, and return it. The first acknowledgement counts."""
        wanted = self._find(id)
        with self._store.transaction():
            if self._store.acknowledge_alerts([wanted.id], by=who(), now=self._pin):
                subject = f"alert:{wanted.code}"
                note(self._store, "alert.acknowledged", subject, ALL_TENANTS, after={"id": str(wanted.id)})
        self._tell(["change"])
        return self._find(id)

    aacknowledge = async_twin(acknowledge)

    def _find(self, id: UUID | str) -> StoredAlert:
        alerts = self._store.stored_alerts(recovered=False, limit=1000)
        match = next((alert for alert in alerts if str(alert.id) == str(id)), None)
        if match is None:
            raise AlertNotFound(f"no open alert has the id {str(id)!r}; see tidemill alerts list", id=id)
        return match


def _check_recipient(to: str | None) -> None:
    check_text("to", to)
    if to is not None and (not to.isprintable() or "@" not in to):
        raise BadSettings(f"to is {to!r}; give a mail address", to=to)


def _state(status: str) -> JobState:
    try:
        return JobState(status)
    except ValueError:
        raise BadFilter(f"unknown status {status!r}; expected one of {', '.join(JobState)}") from None


def _sent(job: JobRow) -> SentNotification:
    args = json.loads(job.args)
    result = None if job.result is None else json.loads(job.result)
    return SentNotification(
        job.id,
        str(args.get("channel")),
        args.get("to"),
        str(args.get("kind")),
        str(args.get("title")),
        str(args.get("text")),
        args.get("link"),
        int(args.get("count", 1)),
        str(args.get("rule", "")),
        tuple(args.get("items", ())),
        job.state.value,
        job.attempt,
        job.created_at,
        job.finished_at if job.state is JobState.COMPLETED else None,
        result if isinstance(result, str) else None,
        _error(job),
    )


def _error(job: JobRow) -> str | None:
    """Why a notification was not sent, in the words of its channel."""
    if job.error is not None:
        return job.error.message
    if job.state in _QUIET or job.reason is None:
        return None
    return job.reason.removeprefix(f"{Retry.__module__}.{Retry.__qualname__}: ")
