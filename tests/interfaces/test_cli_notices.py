"""``tidemill alerts``, ``notices`` and ``subscriptions``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interfaces.cli_kit import Shop, make_shop

from tidemill.domain.alert_history import NewAlert
from tidemill.domain.subscriptions import NewEvent, StoredSubscription
from tidemill.ids import new_id


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return make_shop(tmp_path)


def test_alerts_are_listed_and_acknowledged(shop: Shop) -> None:
    alert = NewAlert(new_id(), "orphans", "", "warning", "two jobs are orphans", 2, 0)
    with shop.app() as app:
        app.store.migrate()
        app.store.open_alerts([alert])
    assert "two jobs are orphans" in shop.run("alerts", "list").output
    assert shop.json("alerts", "acknowledge", str(alert.id)[:30])["acknowledged_by"] is not None
    (found,) = shop.json("alerts", "history")
    assert (found["code"], found["open"]) == ("orphans", True)
    wrong = shop.run("alerts", "acknowledge", "nothing")
    assert wrong.exit_code == 2
    assert "no open alert has the id" in wrong.output


def test_a_subscription_is_listed_and_removed(shop: Shop) -> None:
    with shop.app() as app:
        app.store.migrate()
        app.store.put_settings([StoredSubscription("billing", ("job.finished",)).setting()])
        app.store.settings()
        app.store.append_events([NewEvent("job.finished", new_id(), "send", "default", "completed")])
    (found,) = shop.json("subscriptions", "list")
    assert (found["name"], found["waiting"]) == ("billing", 1)
    assert "billing" in shop.run("subscriptions", "list").output
    assert shop.json("subscriptions", "remove", "billing") == {"name": "billing", "events": 1}
    assert "no subscriptions" in shop.run("subscriptions", "list").output


def test_notices_are_listed_and_unknown_channels_are_refused(shop: Shop) -> None:
    with shop.app() as app:
        app.store.migrate()
    assert shop.json("notices", "list") == []
    assert "no channels" in shop.run("notices", "channels").output
    wrong = shop.run("notices", "send", "ops", "hello")
    assert wrong.exit_code == 2
    assert "there is no channel 'ops'" in wrong.output
