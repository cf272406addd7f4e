"""``tidemill alerts``, ``notify`` and ``subscriptions``."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from standardwebhooks import Webhook
from tests.delivery.receivers import HookReceiver
from tests.interfaces.cli_kit import Shop, call, make_shop

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


def test_notifications_are_listed_and_unknown_channels_are_refused(shop: Shop) -> None:
    with shop.app() as app:
        app.store.migrate()
    assert shop.json("notify", "list") == []
    assert "no channels" in shop.run("notify", "channels").output
    wrong = shop.run("notify", "send", "ops", "hello")
    assert wrong.exit_code == 2
    assert "there is no channel 'ops'" in wrong.output


def test_a_test_message_is_sent_at_once_and_its_failure_is_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    secret = "whsec_" + base64.b64encode(b"a secret of 24 bytes 123").decode()
    with HookReceiver() as good, HookReceiver((503, {})) as busy:
        channels = {"ops": f"{good.url}/#{secret}", "down": f"{busy.url}/#{secret}"}
        program = f"""
from tidemill import App

app = App("memory://", notify={channels!r}, outgoing_networks=["127.0.0.0/8"])
"""
        (tmp_path / "told_app.py").write_text(program)
        one = call("notify", "test", "ops", "--app", "told_app:app", "--json")
        assert one.exit_code == 0, one.output
        assert json.loads(one.stdout) == [
            {"name": "ops", "kind": "webhook", "answer": "HTTP 200", "error": None}
        ]
        sys.modules.pop("told_app")
        every = call("notify", "test", "--app", "told_app:app")
        assert every.exit_code == 1
        assert "the webhook answered 503" in every.output
        sys.modules.pop("told_app")
        wrong = call("notify", "test", "cats", "--app", "told_app:app")
        assert "there is no channel 'cats'; App(notify=…) has ops, down" in wrong.output
        sys.modules.pop("told_app")
        assert len(good.requests) == 2
    _, headers, body = good.requests[0]
    assert Webhook(secret).verify(body, headers)["type"] == "notification.test"
    assert [secret in text for text in (one.output, every.output)] == [False, False]
