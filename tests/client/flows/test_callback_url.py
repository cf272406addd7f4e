"""Callbacks to a URL at the end of flows and batches: signed, retried, and never to a private address."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tidemill import App, ManualClock, NoRetry, PermanentError
from tidemill.domain.callbacks import CALLBACK
from tidemill.domain.webhooks import HookKind, HookRule, verify_delivery
from tidemill.errors import BadSettings, FlowFailed, UsageError

SECRET = "whsec_c2VjcmV0IG9mIHRoZSBzaG9w"


class Receiver(HTTPServer):
    """A server that answers with the given statuses, and then with 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.received: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?a=1"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("TIDEMILL_CALLBACK_SECRET", SECRET)
    monkeypatch.setenv("TIDEMILL_OUTGOING_NETWORKS", "127.0.0.0/8")
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://", clock=ManualClock()) as app:

        @app.task(name="load", retry=NoRetry())
        def load(row: int) -> int:
            if row < 0:
                raise PermanentError("broken row")
            return row

        yield app


def test_a_batch_tells_its_url_once_when_all_jobs_have_ended(app: App, receiver: Receiver) -> None:
    with app.batch("import", callback_url=receiver.url) as batch:
        app.enqueue("load", row=1)
        app.enqueue("load", row=-1)
    with app.testing() as testing:
        testing.drain()
        testing.drain()
    ((headers, body),) = receiver.received
    rule = HookRule(HookKind.STANDARD, (SECRET,))
    (job,) = app.jobs.list(task=CALLBACK).items
    assert job.finished_at is not None
    assert verify_delivery(rule, headers, body, job.finished_at).id == str(job.id)
    event = json.loads(body)
    assert event["type"] == "batch.failed"
    assert event["data"] | {"id": str(batch.id), "total": 2, "failed": 1, "status": "failed"} == event["data"]


def test_a_callback_is_retried_with_the_same_id(app: App, receiver: Receiver) -> None:
    receiver.statuses = [500, 302]
    with app.batch("import", callback_url=receiver.url):
        app.enqueue("load", row=1)
    with app.testing() as testing:
        testing.run_until_idle("2d")
    assert len(receiver.received) == 3
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert app.jobs.count(task=CALLBACK, status="completed") == 1


def test_a_receiver_that_is_gone_is_not_asked_again(app: App, receiver: Receiver) -> None:
    receiver.statuses = [410]
    with app.batch("import", callback_url=receiver.url):
        app.enqueue("load", row=1)
    with app.testing() as testing:
        testing.run_until_idle("2d")
    assert len(receiver.received) == 1
    assert app.jobs.count(task=CALLBACK, status="failed") == 1


def test_a_flow_tells_its_url_how_it_ended(app: App, receiver: Receiver) -> None:
    @app.task(retry=NoRetry())
    def parse(row: int) -> int:
        raise PermanentError("broken")

    flow = app.flow("import", key="k", callback_url=receiver.url)
    flow.add(parse, row=1)
    run = flow.start()
    with app.testing() as testing:
        testing.drain()
    with pytest.raises(FlowFailed):
        run.result(timeout=0)
    ((_, body),) = receiver.received
    data = json.loads(body)["data"]
    assert (data["kind"], data["name"], data["key"], data["status"]) == ("flow", "import", "k", "failed")
    assert [node.name for node in run.nodes()] == ["parse"]


def test_a_private_address_is_refused(app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMILL_OUTGOING_NETWORKS")
    with app.batch("import", callback_url=receiver.url):
        app.enqueue("load", row=1)
    with app.testing() as testing:
        testing.run_until_idle("2d")
    (job,) = app.jobs.list(task=CALLBACK).items
    assert job.status == "failed"
    assert "not a public address" in str(job.error)
    assert receiver.received == []


def test_a_worker_without_a_secret_sends_nothing(
    app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMILL_CALLBACK_SECRET")
    with app.batch("import", callback_url=receiver.url):
        app.enqueue("load", row=1)
    with app.testing() as testing:
        testing.drain()
    (job,) = app.jobs.list(task=CALLBACK).items
    assert "TIDEMILL_CALLBACK_SECRET is not set" in str(job.error)
    assert receiver.received == []


@pytest.mark.parametrize("url", ["ftp://example.com", "https://user:pw@example.com", "/path", "http://a b"])
def test_an_address_that_cannot_be_used_is_refused_at_once(app: App, url: str) -> None:
    with pytest.raises(BadSettings, match="callback_url"):
        app.flow("import", callback_url=url)
    with pytest.raises(BadSettings, match="callback_url"):
        app.batch("import", callback_url=url)


def test_an_included_flow_has_no_callback_of_its_own(app: App) -> None:
    with pytest.raises(UsageError, match="callback_url"):
        app.flow("whole").include(app.flow("part", callback_url="https://example.com"))
