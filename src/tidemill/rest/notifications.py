"""Alerts with their history, notifications, and subscriptions to events."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import alert_document, notification_document, subscription_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document, Instant, Items, Limit, Name, QueryModel, Words
from tidemill.rest.routes import Routes

routes = Routes("notifications")


class AlertsQuery(QueryModel):
    """Filter of alerts."""

    open: bool = Field(False, description="Only alerts that have not recovered.")
    before: Instant | None = Field(None, description="Only alerts that were opened before this instant.")
    limit: Limit = 100


class AlertDocument(Document):
    """One alert: when it was opened, acknowledged and recovered."""

    id: UUID
    code: str
    subject: str
    severity: str
    text: str
    value: float
    threshold: float
    since: Instant | None
    opened_at: Instant
    seen_at: Instant
    acknowledged_at: Instant | None
    acknowledged_by: str | None
    recovered_at: Instant | None
    open: bool


class NotificationsQuery(QueryModel):
    """Filter of notifications."""

    status: str | None = Field(None, max_length=50, description="The status of the notification's job.")
    channel: Name | None = None
    limit: Limit = 100


class NotificationDocument(Document):
    """A notification with its recipient and its outcome."""

    id: UUID = Field(description="The id of the job that sends it.")
    channel: str
    to: str | None
    kind: str
    title: str
    text: str
    link: str | None
    count: int
    rule: str
    items: list[dict[str, Any]]
    status: str
    attempts: int
    created_at: Instant
    sent_at: Instant | None
    answer: str | None
    error: str | None


class NotificationBody(BodyModel):
    """A message to send."""

    channel: Name
    title: Name
    text: Words = ""
    link: Words | None = None


class ChannelDocument(Document):
    """A channel; its address is not shown."""

    name: str
    kind: str


class SubscriptionDocument(Document):
    """A subscription and the events that wait for it."""

    name: str
    on: list[str]
    statuses: list[str] | None
    tasks: list[str] | None
    until: Instant | None
    waiting: int
    failing: int
    oldest_at: Instant | None
    last_error: str | None


@routes.get(
    "/api/alerts/history", role=Role.VIEWER, query=AlertsQuery, answer=Items[AlertDocument], everywhere=True
)
async def list_alert_history(request: ApiRequest) -> Response:
    """List the alerts of the last 90 days, the newest first."""
    query: AlertsQuery = request.query
    if query.open:
        alerts = await request.read(request.app.alerts.list, limit=query.limit)
    else:
        alerts = await request.read(request.app.alerts.history, before=query.before, limit=query.limit)
    return request.page([alert_document(alert) for alert in alerts])


@routes.post("/api/alerts/{id}/acknowledge", role=Role.OPERATOR, answer=AlertDocument, everywhere=True)
async def acknowledge_alert(request: ApiRequest) -> Response:
    """Note that you look after an open alert."""
    return request.reply(alert_document(await request.act(request.app.alerts.acknowledge, request.id())))


@routes.get(
    "/api/notifications",
    role=Role.OPERATOR,
    query=NotificationsQuery,
    answer=Items[NotificationDocument],
    everywhere=True,
)
async def list_notifications(request: ApiRequest) -> Response:
    """List notifications with their recipients, the newest first."""
    query: NotificationsQuery = request.query
    notifications = await request.read(
        request.app.notifications.list, status=query.status, channel=query.channel, limit=query.limit
    )
    return request.page([notification_document(notification) for notification in notifications])


@routes.post(
    "/api/notifications",
    role=Role.ADMIN,
    body=NotificationBody,
    answer=Items[NotificationDocument],
    everywhere=True,
    status=202,
)
async def send_notification(request: ApiRequest) -> Response:
    """Send a message through a channel, for example to test it."""
    body: NotificationBody = request.body
    job = await request.act(
        request.app.notifications.send, body.channel, body.title, body.text, link=body.link
    )
    notifications = await request.read(request.app.notifications.list, limit=100)
    return request.page(
        [notification_document(notification) for notification in notifications if notification.id == job.id]
    )


@routes.get("/api/channels", role=Role.OPERATOR, answer=Items[ChannelDocument], everywhere=True)
async def list_channels(request: ApiRequest) -> Response:
    """List the channels and owners of notifications."""
    channels = await request.read(request.app.notifications.channels)
    return request.page([channel._asdict() for channel in channels])


@routes.get("/api/subscriptions", role=Role.VIEWER, answer=Items[SubscriptionDocument], everywhere=True)
async def list_subscriptions(request: ApiRequest) -> Response:
    """List the subscriptions to events, with the number of events that wait for each."""
    subscriptions = await request.read(request.app.subscriptions.list)
    return request.page([subscription_document(subscription) for subscription in subscriptions])


@routes.delete("/api/subscriptions/{name}", role=Role.ADMIN, everywhere=True)
async def remove_subscription(request: ApiRequest) -> Response:
    """End a subscription that no code declares, and delete its events."""
    await request.act(request.app.subscriptions.remove, request.path["name"])
    return request.empty()
