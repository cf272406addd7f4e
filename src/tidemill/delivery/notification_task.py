"""The task that sends one notification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from tidemill.clock import Clock
from tidemill.delivery.channels import Message
from tidemill.delivery.settings import DeliverySettings
from tidemill.errors import PermanentError
from tidemill.tasks.ambient import current_job


class HasDelivery(Protocol):
    """A client, as this task sees it."""

    delivery: DeliverySettings
    clock: Clock


def notification_sender(client: HasDelivery) -> Callable[..., str]:
    """Return the function that sends a notification through the channels of an app."""

    def notification(
        channel: str,
        kind: str,
        title: str,
        text: str = "",
        count: int = 1,
        rule: str = "",
        items: list[dict[str, Any]] | None = None,
        link: str | None = None,
        to: str | None = None,
    ) -> str:
        """Send a notification, and return the answer of its receiver."""
        target = client.delivery.channel(channel)
        if target is None:
            raise PermanentError(f"this worker has no channel {channel!r}; configure it with App(notify=…)")
        job = current_job()
        data = {
            "title": title,
            "text": text,
            "count": count,
            "items": items or [],
            "link": link,
            "rule": rule,
        }
        id = "" if job is None else job.job_id.hex
        return target.send(Message(f"msg_{id}", client.clock.now(), kind, title, text, link, to, data))

    return notification
