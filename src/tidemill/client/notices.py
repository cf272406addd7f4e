"""``app.alerts`` and ``app.notices``: alerts with their history, and messages to people and systems."""

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
from tidemill.delivery.notice_duty import notice_job
from tidemill.domain.alert_history import StoredAlert
from tidemill.domain.bounds import check_text
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.notices import TASK, Notice
from tidemill.domain.states import JobState
from tidemill.errors import AlertNotFound, BadFilter, BadSettings, UsageError

if TYPE_CHECKING:
    from tidemill.client.core import Client

_QUIET = frozenset({JobState.COMPLETED, JobState.PENDING, JobState.CLAIMED, JobState.RUNNING})


class ChannelInfo(NamedTuple):
    """A channel or an owner. The address is not shown, because it may contain a secret."""

    name: str
    kind: str  #: webhook, mail or apprise


@dataclass(frozen=True, slots=True)
class SentNotice:
    """A notice with its recipient and its outcome. ``status`` is that of its job; ``answer`` is what the receiver answered."""

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


class Notices(StoreApi):
    """Notices of a store. Every method has an asynchronous twin with the prefix ``a``."""

    def list(
        self, *, status: str | None = None, channel: str | None = None, limit: int = 100
    ) -> Sequence[SentNotice]:
        """Return notices, the newest first."""
        states = frozenset() if status is None else frozenset({_state(status)})
        where = JobFilter(ALL_TENANTS, tasks=frozenset({TASK}), states=states)
        page = self._store.jobs(where, sort=Sort.NEWEST, limit=min(limit, 1000))
        notices = [_sent(job) for job in page.items]
        return [notice for notice in notices if channel in (None, notice.channel)]

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
        """Send a message of your own, and return its job: ``app.notices.send("mail", "Your export is ready", link=…)``.

        ``to`` replaces the recipient of a mail channel.
        """
        if self._client.delivery.channel(channel) is None:
            names = ", ".join(info.name for info in self.channels()) or "none"
            raise BadSettings(f"there is no channel {channel!r}; App(notify=…) has {names}", channel=channel)
        for name, value in (("title", title), ("link", link), ("to", to)):
            check_text(name, value)
        if to is not None and (not to.isprintable() or "@" not in to):
            raise BadSettings(f"to is {to!r}; give a mail address", to=to)
        job = notice_job(Notice(channel, "message", title, text, 1, "", [], link), to)
        insert_new(self._store, [job], key_taken, self._pin)
        self._tell([f"ready:{job.queue}"])
        return Job(self._client, job)

    asend = async_twin(send)


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


def _state(status: str) -> JobState:
    try:
        return JobState(status)
    except ValueError:
        raise BadFilter(f"unknown status {status!r}; expected one of {', '.join(JobState)}") from None


def _sent(job: JobRow) -> SentNotice:
    args = json.loads(job.args)
    result = None if job.result is None else json.loads(job.result)
    return SentNotice(
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
        job.error.message if job.error is not None else None if job.state in _QUIET else job.reason,
    )
