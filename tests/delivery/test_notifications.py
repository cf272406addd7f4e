"""Notifications end to end: an event in the store, a rule, a job, and a real receiver."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from standardwebhooks import Webhook
from tests.delivery.receivers import HookReceiver, MailBox, mail_server
from tests.engine.worker_kit import until

from tidemill import App, Breaker, Context, Fixed, ManualClock, NotificationRule, PermanentError
from tidemill.delivery import outgoing_http
from tidemill.domain.outgoing_addresses import read_networks
from tidemill.errors import BadSchedule, BadSettings

SECRET = "whsec_" + base64.b64encode(b"a secret of 24 bytes 123").decode()
START = datetime(2026, 3, 2, 12, tzinfo=UTC)
LOCAL = ["127.0.0.0/8"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def mail() -> Iterator[tuple[str, MailBox]]:
    with mail_server() as started:
        yield started


def run(app: App) -> None:
    """Run the jobs, turn their events into notifications, and send those."""
    app.testing().drain()
    app.subscriptions.deliver()
    app.testing().drain()


def notify_app(clock: ManualClock, **settings: Any) -> App:
    app = App("memory://", clock=clock, outgoing_networks=LOCAL, alerts=False, **settings)

    @app.task(retry=None, owner="billing-team")
    def charge(order: int) -> int:
        if order < 0:
            raise PermanentError(f"order {order} is refused")
        return order

    return app


def declared(app: App) -> Any:
    """The task of the app, after its rules are stored as a worker would store them."""
    app.subscriptions.deliver()
    return app.bound_task("charge")


def test_a_webhook_is_signed_and_an_independent_library_accepts_it() -> None:
    clock = ManualClock(datetime.now(UTC))  # the library compares the time with its own
    with HookReceiver() as hook:
        rules = [NotificationRule("hook", on="failed")]
        app = notify_app(clock, notify={"hook": f"{hook.url}/in?x=1#{SECRET}"}, notifications=rules)
        declared(app).enqueue(order=-1)
        declared(app).enqueue(order=1)
        run(app)
        app.close()
    ((path, headers, body),) = hook.requests
    assert path == "/in?x=1"
    document = Webhook(SECRET).verify(body, headers)
    assert document["type"] == "notification.failed"
    assert document["data"]["items"][0]["error"] == "tidemill.errors.PermanentError: order -1 is refused"
    with pytest.raises(Exception, match="signature"):
        Webhook(SECRET).verify(body + b" ", headers)


def test_the_owner_of_a_task_is_notified_of_a_permanent_failure(
    clock: ManualClock, mail: tuple[str, MailBox]
) -> None:
    url, box = mail
    app = notify_app(
        clock,
        smtp=url,
        owners={"billing-team": "mailto:billing@example.com"},
        dashboard_url="https://jobs.example.com/",
    )
    job = declared(app).enqueue(order=-7)
    declared(app).enqueue(order=7)
    run(app)
    (sent,) = app.notifications.list()
    app.close()
    assert box.recipients == [["billing@example.com"]]
    (message,) = box.mails
    assert message["Subject"] == "1 job of charge failed"
    assert f"https://jobs.example.com/jobs/{job.id}" in message.get_content()
    assert "order -7 is refused" in message.get_content()
    assert (sent.channel, sent.status, sent.rule, sent.count) == (
        "owner:billing-team",
        "completed",
        "owners",
        1,
    )
    assert sent.answer == "mailed to billing@example.com"
    assert sent.sent_at is not None


def test_a_failure_escalates_from_retries_to_the_breaker_the_dead_letter_and_the_owner(
    tmp_path: Path, mail: tuple[str, MailBox], caplog: pytest.LogCaptureFixture
) -> None:
    url, box = mail
    with App(
        f"sqlite:///{tmp_path}/jobs.db",
        alerts=False,
        smtp=url,
        owners={"ann": "mailto:ann@example.com"},
        notifications=[NotificationRule("@owner", on=["failed", "dead_lettered"], every=0)],
    ) as app:
        runs: list[str] = []

        @app.task(
            retry=Fixed(max_attempts=3, wait="1s"),
            owner="ann",
            breaker=Breaker("bank", least=2, rest="500ms"),
        )
        def pay() -> None:
            (breaker,) = (limit for limit in app.limits.list() if limit.name == "breaker/bank")
            runs.append(breaker.phase or "")
            raise ConnectionError("the bank is down")

        with caplog.at_level(logging.WARNING), app.worker():
            job = pay.enqueue()
            until(lambda: bool(box.mails), "the owner has mail", 60)
        assert runs == ["closed", "closed", "half_open"]
        assert "breaker bank is open" in caplog.text
        assert job.refresh().status == "dead_lettered"
        (sent,) = app.notifications.list()
    assert [mail["To"] for mail in box.mails] == ["ann@example.com"]
    assert "the bank is down" in box.mails[0].get_content()
    assert (sent.channel, sent.kind, sent.rule) == (
        "owner:ann",
        "dead_lettered",
        "@owner/failed+dead_lettered",
    )


def test_events_within_a_minute_become_one_notification(clock: ManualClock) -> None:
    with HookReceiver() as hook:
        app = notify_app(
            clock,
            notify={"hook": f"{hook.url}/#{SECRET}"},
            notifications=[NotificationRule("hook", on="failed", title="$count of $task", every="1m")],
        )
        task = declared(app)
        for order in range(30):
            task.enqueue(order=-1 - order)
        run(app)
        (sent,) = app.notifications.list()
        app.close()
    assert len(hook.requests) == 1
    assert sent.title == "30 of charge"
    assert sent.count == 30
    assert "and 10 more" in sent.text
    assert len(sent.items) == 20


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_receiver_is_asked_again_after_the_time_that_it_names(clock: ManualClock, status: int) -> None:
    with HookReceiver((status, {"Retry-After": "120"}), (204, {})) as hook:
        app = notify_app(
            clock,
            notify={"hook": f"{hook.url}/#{SECRET}"},
            notifications=[NotificationRule("hook", on="failed")],
        )
        declared(app).enqueue(order=-1)
        run(app)
        (busy,) = app.notifications.list()
        assert (busy.status, busy.error) == ("scheduled", f"the webhook answered {status}")
        clock.advance(timedelta(seconds=119))
        app.testing().drain()
        assert len(hook.requests) == 1
        clock.advance(timedelta(seconds=2))
        app.testing().drain()
        (sent,) = app.notifications.list()
        app.close()
    assert (sent.status, sent.attempts, sent.answer) == ("completed", 2, "HTTP 204")
    ids = {headers["webhook-id"] for _, headers, _ in hook.requests}
    assert len(ids) == 1


def test_a_receiver_that_does_not_answer_is_asked_again(clock: ManualClock) -> None:
    with HookReceiver() as hook:
        gone = hook.url
    app = notify_app(
        clock, notify={"hook": f"{gone}/#{SECRET}"}, notifications=[NotificationRule("hook", on="failed")]
    )
    declared(app).enqueue(order=-1)
    run(app)
    assert [notification.status for notification in app.notifications.list()] == ["scheduled"]
    app.close()


def test_a_redirect_is_not_followed(clock: ManualClock) -> None:
    with HookReceiver() as inner, HookReceiver((302, {"Location": inner.url})) as hook:
        app = notify_app(
            clock,
            notify={"hook": f"{hook.url}/#{SECRET}"},
            notifications=[NotificationRule("hook", on="failed")],
        )
        declared(app).enqueue(order=-1)
        run(app)
        (sent,) = app.notifications.list()
        app.close()
    assert not inner.requests
    assert sent.status == "failed"
    assert sent.error is not None
    assert "redirects are not followed" in sent.error


def test_a_private_address_is_refused(clock: ManualClock) -> None:
    with HookReceiver() as hook:
        app = App(
            "memory://",
            clock=clock,
            alerts=False,
            notify={"hook": f"{hook.url}/#{SECRET}"},
        )
        job = app.notifications.send("hook", "hello")
        app.testing().drain()
        (sent,) = app.notifications.list()
        app.close()
    assert not hook.requests
    assert job.id == sent.id
    assert sent.error is not None
    assert "not a public address" in sent.error


# apprise imports modules that Python 3.11 and 3.12 deprecate.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_service_of_apprise_is_called_only_at_an_allowed_address(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    apprise = importlib.import_module("apprise.apprise")
    with (
        # The pools of apprise live as long as the process.
        ThreadPoolExecutor(2) as calls,
        ThreadPoolExecutor(2) as coordination,
        HookReceiver((302, {"Location": "http://127.0.0.1:1/"}), (200, {})) as hook,
    ):
        monkeypatch.setattr(apprise, "_shared_executor", calls)
        monkeypatch.setattr(apprise, "_coordinator_executor", coordination)
        channels = {"chat": hook.url.replace("http:", "json:") + "/in"}
        with App("memory://", clock=clock, alerts=False, notify=channels) as app:
            app.notifications.send("chat", "hello")
            app.testing().drain()
            (sent,) = app.notifications.list()
            assert sent.status == "failed"
            assert "127.0.0.1, which is not a public address" in (sent.error or "")
        assert not hook.requests
        with App("memory://", clock=clock, alerts=False, notify=channels, outgoing_networks=LOCAL) as app:
            (redirected,) = app.notifications.test("chat")
            assert "did not accept" in (redirected.error or "")
            job = app.notifications.send("chat", "hello")
            app.testing().drain()
            assert job.refresh().status == "completed"
    sent_bodies = [json.loads(body) for _, _, body in hook.requests]
    assert [(body["title"], body["message"]) for body in sent_bodies] == [
        ("A test of Tidemill", "The channel chat works."),
        ("", "hello"),
    ]


def test_a_receiver_that_accepts_and_is_silent_is_asked_again(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        outgoing_http.send, "__kwdefaults__", {"allowed": (), "timeout": 0.05, "longest": 10.0}
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/#{SECRET}"
        app = notify_app(clock, notify={"hook": url}, notifications=[NotificationRule("hook", on="failed")])
        declared(app).enqueue(order=-1)
        run(app)
        (waiting,) = app.notifications.list()
        app.close()
    assert (waiting.status, waiting.attempts) == ("scheduled", 1)
    assert "timed out" in (waiting.error or "")


@pytest.mark.parametrize("begin", ["", "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n"])
def test_a_receiver_that_sends_a_byte_now_and_then_holds_no_thread(begin: str) -> None:
    gone = threading.Event()

    def trickle(server: socket.socket) -> None:
        peer, _ = server.accept()
        with peer, contextlib.suppress(OSError):
            peer.sendall(begin.encode())
            while not gone.wait(0.02):
                peer.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as slow:
        receiver = threading.Thread(target=trickle, args=[slow])
        receiver.start()
        url = f"http://127.0.0.1:{slow.getsockname()[1]}/"
        call = functools.partial(
            outgoing_http.send, "POST", url, allowed=read_networks(["127.0.0.0/8"]), longest=0.3
        )
        try:
            if begin:
                assert call().status == 200
            else:
                with pytest.raises(OSError, match=r"."):
                    call()
        finally:
            gone.set()
            receiver.join()


def test_the_notifications_of_a_definition_are_sent(clock: ManualClock, mail: tuple[str, MailBox]) -> None:
    url, box = mail
    app = notify_app(clock, smtp=url, notify={"ops": "mailto:ops@example.com"})
    app.definitions.save("invoice", "charge", args={"order": -1}, notifications={"failed": ["ops"]})
    app.definitions.save("other", "charge", args={"order": -2})
    app.definitions.trigger("invoice")
    app.definitions.trigger("other")
    run(app)
    app.close()
    assert [mail["To"] for mail in box.mails] == ["ops@example.com"]
    assert "order -1" in box.mails[0].get_content()


def test_unknown_channels_and_events_of_a_definition_are_refused(clock: ManualClock) -> None:
    app = notify_app(clock)
    with pytest.raises(BadSchedule, match="notifications: there is no channel 'ops'"):
        app.definitions.save("d", "charge", args={"order": 1}, notifications={"failed": ["ops"]})
    with pytest.raises(BadSchedule, match="unknown event 'boom'"):
        app.definitions.save("d", "charge", args={"order": 1}, notifications={"boom": ["ops"]})
    app.close()


def test_a_task_names_the_channels_of_its_events(clock: ManualClock, mail: tuple[str, MailBox]) -> None:
    url, box = mail
    addresses = {"ops": "mailto:ops@example.com", "users": "mailto:users@example.com"}
    app = App(
        "memory://",
        clock=clock,
        alerts=False,
        smtp=url,
        notify=addresses,
        owners={"ann": "mailto:ann@example.com"},
    )

    @app.task(retry=None, notify={"completed": "users", "failed": ["ops", "ann"]}, aliases=["old_export"])
    def export(works: bool) -> None:
        if not works:
            raise PermanentError("the disk is full")

    @app.task(retry=None, notify="ops")
    def clean() -> None:
        raise PermanentError("no")

    @app.task
    def silent() -> None: ...

    app.subscriptions.deliver()
    export.enqueue(works=True)
    export.enqueue(works=False)
    clean.enqueue()
    silent.enqueue()
    run(app)
    told = sorted((mail["To"], mail["Subject"]) for mail in box.mails)
    app.close()
    assert told == [
        ("ann@example.com", "1 job of export failed"),
        ("ops@example.com", "2 jobs failed"),
        ("users@example.com", "1 job of export completed"),
    ]


def test_a_task_that_names_an_unknown_channel_or_event_is_refused(mail: tuple[str, MailBox]) -> None:
    def work() -> None: ...

    with App("memory://", smtp=mail[0], notify={"ops": "mailto:ops@example.com"}) as app:
        with pytest.raises(BadSettings, match="notify names 'cats', which is no channel and no owner"):
            app.task(notify="cats")(work)
        with pytest.raises(BadSettings, match="task work: notify: unknown event 'boom'"):
            app.task(notify={"boom": "ops"})(work)
        assert "work" not in app.registry
    with App("memory://") as app:
        app.task(notify="ops")(work)  # ``app.configure`` may still add the channel
        with pytest.raises(BadSettings, match="names 'ops', which is no channel"), app.worker():
            pass


def test_the_people_whom_a_job_asks_are_notified(clock: ManualClock, mail: tuple[str, MailBox]) -> None:
    url, box = mail
    app = App(
        "memory://", clock=clock, alerts=False, smtp=url, notify={"finance": "mailto:finance@example.com"}
    )

    class Decision(BaseModel):
        approved: bool

    @app.task
    def expense(ctx: Context, amount: int) -> bool:
        decision = ctx.ask(Decision, to="finance", message=f"May we spend {amount}?")
        return decision is not None and decision.approved

    app.subscriptions.deliver()
    job = expense.enqueue(amount=500)
    run(app)
    assert [mail["To"] for mail in box.mails] == ["finance@example.com"]
    assert "May we spend 500?" in box.mails[0].get_content()
    app.signals.answer(job, {"approved": True})
    app.testing().drain()
    assert job.result() is True
    app.close()


def test_a_user_is_notified_with_a_link_when_an_export_is_ready(
    clock: ManualClock, mail: tuple[str, MailBox]
) -> None:
    url, box = mail
    app = App("memory://", clock=clock, alerts=False, smtp=url, notify={"users": "mailto:nobody@example.com"})

    @app.task
    def export(user: str) -> None:
        app.notifications.send("users", "Your export is ready", link="https://example.com/x.csv", to=user)

    export.enqueue(user="ann@example.com")
    app.testing().drain()
    app.close()
    assert box.recipients == [["ann@example.com"]]
    assert "https://example.com/x.csv" in box.mails[0].get_content()


def test_quiet_hours_hold_back_warnings_and_let_critical_alerts_pass() -> None:
    clock = ManualClock(datetime(2026, 1, 5, 22, 30, tzinfo=UTC))  # 23:30 in Berlin
    with HookReceiver() as hook:
        rule = NotificationRule("hook", on=["failed", "alert"], quiet="22:00-07:00 Europe/Berlin")
        app = notify_app(clock, notify={"hook": f"{hook.url}/#{SECRET}"}, notifications=[rule])
        declared(app).enqueue(order=-1)
        for _ in range(11):
            declared(app).enqueue(order=-2)
        run(app)
        assert not hook.requests
        app.alerts.evaluate()
        run(app)
        texts = [json.loads(body)["data"]["items"] for _, _, body in hook.requests]
        assert [item["code"] for items in texts for item in items] == ["failure_rate"]
        clock.advance(timedelta(hours=7, minutes=30))  # 07:00 in Berlin
        run(app)
        app.close()
    kinds = [json.loads(body)["type"] for _, _, body in hook.requests]
    assert kinds == ["notification.alert", "notification.failed"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"notify": {"hook": "https://example.com"}}, "webhook without a secret"),
        ({"notify": {"mail": "mailto:a@example.com"}}, "give the mail server too"),
        ({"notify": {"x": "nothing"}}, "is no address"),
        ({"notifications": [NotificationRule("ops")]}, "which is no channel"),
        ({"outgoing_networks": ["10.0.0.0/99"]}, "give networks such as"),
        ({"smtp": "http://x"}, "is not a mail server"),
        ({"dashboard_url": "jobs"}, "dashboard_url"),
    ],
)
def test_invalid_settings_are_refused_with_a_hint(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        App("memory://", **settings)


def test_no_notification_reveals_the_address_of_its_channel(clock: ManualClock) -> None:
    with HookReceiver() as hook:
        app = notify_app(
            clock,
            notify={"hook": f"{hook.url}/#{SECRET}"},
            notifications=[NotificationRule("hook", on="failed")],
        )
        declared(app).enqueue(order=-1)
        run(app)
        stored = repr(app.store.settings()) + repr(list(app.notifications.list()))
        assert hook.url not in stored
        assert SECRET not in stored
        assert [info.kind for info in app.notifications.channels()] == ["webhook"]
        app.close()
