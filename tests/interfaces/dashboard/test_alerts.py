"""The page of alerts and notifications."""

from __future__ import annotations

from tests.interfaces.dashboard.kit import House

from tidemill.domain.alert_history import NewAlert
from tidemill.ids import new_id


def test_an_alert_is_shown_and_acknowledged_once(shop: House) -> None:
    alert = NewAlert(new_id(), "queue_depth", "mail", "warning", "200 <jobs> wait", 200, 100)
    shop.app.store.open_alerts([alert])
    person = shop.person("operator", "*")
    page = person.open("/alerts")
    assert "200 &lt;jobs&gt; wait" in page
    assert "Acknowledge" not in shop.person("viewer", "*").open("/alerts").replace("Acknowledged", "")
    after = person.send("/alerts", f"/alerts/{alert.id}/acknowledge")
    assert "Acknowledged: 200" in after
    assert shop.app.alerts.list()[0].acknowledged_by is not None
    shop.app.store.recover_alerts([alert.id])
    assert "No open alerts" in person.open("/alerts")
    gone = person.post(f"/alerts/{alert.id}/acknowledge")
    assert gone.status_code == 303


def test_critical_alerts_come_first(shop: House) -> None:
    shop.app.store.open_alerts(
        [
            NewAlert(new_id(), "failure_rate", "", "critical", "most jobs fail", 1, 0.1),
            NewAlert(new_id(), "queue_depth", "mail", "warning", "200 jobs wait", 200, 100),
        ]
    )
    page = shop.person("operator", "*").open("/alerts")
    assert page.index("Most jobs fail") < page.index("200 jobs wait")
    assert '<span class="badge s-gone">' in page


def test_the_page_belongs_to_people_of_all_tenants(shop: House) -> None:
    shop.person("admin", "acme").open("/alerts", 403)
