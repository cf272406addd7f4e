"""Alerts with their history, notifications and subscriptions over HTTP."""

from __future__ import annotations

from tests.interfaces.rest.kit import Site, problem

from tidemill.domain.alert_history import NewAlert
from tidemill.domain.subscriptions import NewEvent, StoredSubscription
from tidemill.ids import new_id
from tidemill.rest.notifications import (
    AlertDocument,
    ChannelDocument,
    NotificationDocument,
    SubscriptionDocument,
)

ALL = "*"


def test_an_alert_is_listed_and_acknowledged(alone: Site) -> None:
    alert = NewAlert(new_id(), "orphans", "", "warning", "two jobs", 2, 0)
    alone.app.store.open_alerts([alert])
    (found,) = alone.get("/api/alerts/history?open=true", role="viewer", tenant=ALL)["items"]
    AlertDocument.model_validate(found)
    assert (found["id"], found["open"], found["acknowledged_by"]) == (str(alert.id), True, None)
    done = alone.call("POST", f"/api/alerts/{alert.id}/acknowledge", role="operator", tenant=ALL)
    assert done.status_code == 200
    assert done.json()["acknowledged_by"] is not None
    alone.app.store.recover_alerts([alert.id])
    assert alone.get("/api/alerts/history?open=true", role="viewer", tenant=ALL)["items"] == []
    assert len(alone.get("/api/alerts/history", role="viewer", tenant=ALL)["items"]) == 1
    problem(
        alone.call("POST", f"/api/alerts/{alert.id}/acknowledge", role="operator", tenant=ALL),
        404,
        "alert_not_found",
    )


def test_notifications_and_channels_are_listed(alone: Site) -> None:
    assert alone.get("/api/notifications", role="operator", tenant=ALL)["items"] == []
    assert alone.get("/api/channels", role="operator", tenant=ALL)["items"] == []
    body = {"channel": "ops", "title": "hello"}
    problem(alone.call("POST", "/api/notifications", body, role="admin", tenant=ALL), 422, "bad_settings")
    assert {"channel", "title", "status"} <= set(NotificationDocument.model_fields)
    assert set(ChannelDocument.model_fields) == {"name", "kind"}


def test_a_subscription_is_listed_and_removed(alone: Site) -> None:
    store = alone.app.store
    store.put_settings([StoredSubscription("billing", ("job.finished",)).setting()])
    store.settings()
    store.append_events([NewEvent("job.finished", new_id(), "send", "acme", "completed")])
    (found,) = alone.get("/api/subscriptions", role="viewer", tenant=ALL)["items"]
    SubscriptionDocument.model_validate(found)
    assert (found["name"], found["on"], found["waiting"]) == ("billing", ["job.finished"], 1)
    gone = alone.call("DELETE", "/api/subscriptions/billing", role="admin", tenant=ALL)
    assert gone.status_code == 204
    problem(
        alone.call("DELETE", "/api/subscriptions/billing", role="admin", tenant=ALL),
        404,
        "subscription_not_found",
    )
