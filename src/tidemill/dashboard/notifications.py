"""Notifications page: the channels of the app with their latest deliveries, tests of channels, and notifications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from tidemill.client.notifications import ChannelInfo, SentNotification
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role

pages = PageRoutes()

SHOWN = 100
"""Notifications on the page."""

STATUSES = ("pending", "scheduled", "running", "completed", "failed", "dead_lettered")
"""Statuses in the filter: a notification is sent by a job."""


class ChannelRow(NamedTuple):
    """A channel with the latest of the notifications shown."""

    name: str
    kind: str
    latest: SentNotification | None
    failed: int


@pages.get("/notifications", role=Role.OPERATOR, everywhere=True)
async def notifications(request: PageRequest) -> Response:
    """Show the channels, and the notifications that match the filter."""
    values = await request.read(_look, request)
    return request.render("notifications.html", statuses=STATUSES, **values)


def _look(request: PageRequest) -> dict[str, Any]:
    channels = request.app.notifications.channels()
    known = {channel.name for channel in channels}
    channel, status = request.query.get("channel"), request.query.get("status")
    chosen = channel if channel in known else None
    state = status if status in STATUSES else None
    latest = request.app.notifications.list(limit=SHOWN)
    listed = latest
    if chosen is not None or state is not None:
        listed = request.app.notifications.list(status=state, channel=chosen, limit=SHOWN)
    return {
        "channels": channel_rows(channels, latest),
        "notifications": listed,
        "chosen": chosen,
        "state": state,
    }


def channel_rows(channels: Iterable[ChannelInfo], latest: Sequence[SentNotification]) -> list[ChannelRow]:
    """Return the channels with their latest notification and the number of those that failed."""
    rows = []
    for channel in channels:
        own = [notification for notification in latest if notification.channel == channel.name]
        failed = sum(notification.error is not None for notification in own)
        rows.append(ChannelRow(channel.name, channel.kind, own[0] if own else None, failed))
    return rows


@pages.post("/notifications/test", role=Role.ADMIN, everywhere=True)
async def send_test(request: PageRequest) -> Response:
    """Send a test message through a channel now, without retries."""
    (tested,) = await request.act(request.app.notifications.test, request.form.get("channel") or "")
    if tested.error is not None:
        return request.back(
            "/notifications", f"The test through {tested.name} failed: {tested.error}", good=False
        )
    answer = f": {tested.answer}" if tested.answer else ""
    return request.back("/notifications", f"The test through {tested.name} was accepted{answer}.")
