"""The page of alerts with their history, and of subscriptions."""

from __future__ import annotations

from starlette.responses import Response

from tidemill.dashboard.alert_links import concern
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.alerts import Severity
from tidemill.errors import AlertNotFound

pages = PageRoutes()

_SHOWN = 100


@pages.get("/alerts", role=Role.VIEWER, everywhere=True)
async def alerts(request: PageRequest) -> Response:
    """Show open alerts, recent ones, and subscriptions."""
    opened, history, subscriptions = await request.read(
        lambda: (
            request.app.alerts.list(limit=_SHOWN),
            request.app.alerts.history(limit=_SHOWN),
            request.app.subscriptions.list(),
        )
    )
    return request.render(
        "alerts.html",
        opened=sorted(opened, key=lambda alert: alert.severity != Severity.CRITICAL),
        concerns={alert.id: concern(alert) for alert in (*opened, *history)},
        history=[alert for alert in history if not alert.is_open],
        subscriptions=subscriptions,
        at=request.now(),
    )


@pages.post("/alerts/{id}/acknowledge", role=Role.OPERATOR, everywhere=True)
async def acknowledge(request: PageRequest) -> Response:
    """Acknowledge an open alert."""
    try:
        alert = await request.act(request.app.alerts.acknowledge, request.id())
    except AlertNotFound:
        return request.back("/alerts", "This alert has recovered in the meantime.", good=False)
    return request.back("/alerts", f"Acknowledged: {alert.text}")
