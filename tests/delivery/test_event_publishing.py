"""Tests of events that go to real RabbitMQ and Redis servers, and of handlers that receive several events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from redis import Redis
from tests.engine.cluster_kit import eventually
from tests.servers.rabbitmq import RabbitNode
from tests.servers.restartable import RestartableServer

from tidemill import App, Event
from tidemill.delivery.batch_handler import BatchHandler
from tidemill.delivery.event_publishers import open_publisher
from tidemill.delivery.subscriber import waves
from tidemill.domain.event_messages import event_message
from tidemill.domain.subscriptions import StoredEvent
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.ids import new_id
from tidemill.rabbitmq import connect

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Published(NamedTuple):
    """A message of RabbitMQ."""

    key: str
    body: dict[str, Any]
    id: str | None
    persistent: bool


class Binding:
    """A durable queue of another system, which is bound to an exchange."""

    def __init__(self, node: RabbitNode, pattern: str) -> None:
        self._node = node
        self.name = f"q-{new_id().hex}"
        self.exchange = f"x-{new_id().hex}"
        self.url = f"{node.url}?exchange={self.exchange}"
        asyncio.run(self._bind(pattern))

    async def _bind(self, pattern: str) -> None:
        connection = await connect(self._node.url, "test")
        channel = await connection.channel()
        exchange = await channel.declare_exchange(self.exchange, "topic", durable=True)
        queue = await channel.declare_queue(self.name, durable=True)
        await queue.bind(exchange, pattern)
        await connection.close()

    def messages(self) -> list[Published]:
        """Take all messages from the queue."""
        return asyncio.run(self._take())

    async def _take(self) -> list[Published]:
        connection = await connect(self._node.url, "test")
        channel = await connection.channel()
        queue = await channel.get_queue(self.name)
        found = []
        while (message := await queue.get(fail=False)) is not None:
            persistent = message.delivery_mode == 2
            found.append(
                Published(message.routing_key or "", json.loads(message.body), message.message_id, persistent)
            )
            await message.ack()
        await connection.close()
        return found


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://") as app:

        @app.task(name="mail.send", retry=None)
        def send(to: str) -> str:
            if to == "nobody":
                raise ValueError("no such person")
            return to

        yield app


def send(app: App, *to: str) -> list[UUID]:
    jobs = [app.enqueue("mail.send", to=name).id for name in to]
    app.testing().drain()
    return jobs


# RabbitMQ ----------------------------------------------------------------------------------------------------------------


def test_events_reach_a_topic_exchange_with_keys_that_queues_can_select(
    app: App, rabbitmq: RabbitNode
) -> None:
    failed = Binding(rabbitmq, "job.finished.failed.#")
    app.forward("job.finished", failed.url, durable="erp")
    _, lost = send(app, "ada", "nobody")
    app.subscriptions.deliver()
    (message,) = failed.messages()
    assert message.key == "job.finished.failed.mail.send"
    assert message.persistent
    assert message.id == message.body["id"]
    assert (message.body["job_id"], message.body["tenant"], message.body["state"]) == (
        str(lost),
        "default",
        "failed",
    )
    assert message.body["data"]["error"]["message"] == "no such person"
    app.subscriptions.deliver()
    assert failed.messages() == []


def test_events_wait_while_rabbitmq_is_away_and_none_is_lost(app: App, rabbitmq: RabbitNode) -> None:
    queue = Binding(rabbitmq, "#")
    app.forward("job.finished", queue.url, durable="erp")
    first = send(app, "ada")
    app.subscriptions.deliver()
    rabbitmq.kill()
    second = send(app, "bob", "cy")
    with pytest.raises(StoreUnavailable, match="cannot be published to amqp://127"):
        app.subscriptions.deliver()
    (status,) = app.subscriptions.list()
    assert (status.waiting, status.failing) == (2, 1)
    assert "cannot be published" in str(status.last_error)
    rabbitmq.start()
    eventually(lambda: delivered(app))
    assert [message.body["job_id"] for message in queue.messages()] == [str(id) for id in [*first, *second]]


def delivered(app: App) -> bool:
    """Deliver due events; return whether all are delivered."""
    app.subscriptions.deliver()
    return all(status.waiting == 0 for status in app.subscriptions.list())


def test_a_worker_publishes_every_event_while_the_node_restarts(rabbitmq: RabbitNode, tmp_path: Any) -> None:
    queue = Binding(rabbitmq, "job.finished.#")
    with App(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def note(number: int) -> int:
            return number

        app.forward("job.finished", queue.url, durable="erp")
        ids: set[str] = set()
        with app.worker():
            for part in range(3):
                ids |= {str(job.id) for job in note.enqueue_many([{"number": n} for n in range(100)])}
                if part == 1:
                    rabbitmq.restart()
            eventually(lambda: app.jobs.count(status="completed") == 300, 60)
            eventually(lambda: all(status.waiting == 0 for status in app.subscriptions.list()), 60)
    messages = queue.messages()
    assert {message.body["job_id"] for message in messages} == ids
    assert len({message.id for message in messages}) == 300  # a repeated event has the same id


# Redis -------------------------------------------------------------------------------------------------------------------


def entries(server: RestartableServer, stream: str) -> list[dict[str, str]]:
    with closing(Redis.from_url(server.url, decode_responses=True)) as redis:
        rows: Any = redis.xrange(stream)
        return [fields for _, fields in rows]


def test_events_are_appended_to_a_stream_of_limited_length(app: App, redis_server: RestartableServer) -> None:
    app.forward("job.*", f"{redis_server.url}/0?stream=jobs&maxlen=1000", durable="erp")
    (id,) = send(app, "ada")
    app.subscriptions.deliver()
    rows = entries(redis_server, "jobs")
    assert [row["event"] for row in rows] == ["job.enqueued", "job.finished"]
    assert {row["job_id"] for row in rows} == {str(id)}
    assert len({row["id"] for row in rows}) == 2
    assert rows[-1]["state"] == "completed"
    assert json.loads(rows[-1]["data"])["attempt"] == 1


def test_events_wait_while_redis_is_halted(app: App, redis_server: RestartableServer) -> None:
    app.forward("job.finished", f"{redis_server.url}/0?stream=halted", durable="erp")
    ids = send(app, "ada", "bob")
    with redis_server.halted(), pytest.raises(StoreUnavailable, match="stream halted"):
        app.subscriptions.deliver()
    eventually(lambda: delivered(app))
    assert {row["job_id"] for row in entries(redis_server, "halted")} == {str(id) for id in ids}


# Handlers of several events ----------------------------------------------------------------------------------------------


class Recorder(BatchHandler):
    """Records batches, and refuses some events."""

    shown = "a test"

    def __init__(self, *refused: str) -> None:
        self.batches: list[list[tuple[UUID | None, str]]] = []
        self.refused = set(refused)

    def handle(self, events: Sequence[Event]) -> Mapping[int, str]:
        self.batches.append([(event.job_id, event.name) for event in events])
        return {event.seq or 0: "refused" for event in events if event.name in self.refused}

    def close(self) -> None: ...


def test_a_batch_has_one_event_of_each_job_in_their_order(app: App) -> None:
    recorder = Recorder()
    app.on("job.*", recorder, durable="erp")
    ids = send(app, "ada", "bob")
    app.subscriptions.deliver()
    names = ["job.enqueued", "job.finished"]
    assert recorder.batches == [[(id, name) for id in ids] for name in names]


def test_later_events_of_a_job_wait_for_a_refused_one_and_other_jobs_do_not(app: App) -> None:
    recorder = Recorder("job.enqueued")
    app.on("job.*", recorder, durable="erp")
    ids = send(app, "ada", "bob")
    app.subscriptions.deliver()
    assert recorder.batches == [[(id, "job.enqueued") for id in ids]]
    recorder.refused.clear()
    recorder.batches.clear()
    eventually(lambda: delivered(app))
    for id in ids:
        assert [name for batch in recorder.batches for job, name in batch if job == id] == [
            "job.enqueued",
            "job.finished",
        ]


def test_events_without_a_job_keep_their_order_too() -> None:
    def stored(seq: int, name: str, job: UUID | None = None) -> StoredEvent:
        return StoredEvent(seq, "erp", name, AT, job, None, None, None, "{}")

    job = new_id()
    events = [
        stored(1, "paid"),
        stored(2, "job.started", job),
        stored(3, "paid"),
        stored(4, "job.finished", job),
    ]
    assert [[event.seq for event in wave] for wave in waves(events)] == [[1, 2], [3, 4]]


# Messages ----------------------------------------------------------------------------------------------------------------


def test_the_id_of_a_message_depends_on_the_whole_event() -> None:
    job = new_id()
    one = event_message(1, "job.finished", AT, job, "mail.send", "default", "completed", {"attempt": 1})
    assert one.id == event_message(1, "job.finished", AT, job, "mail.send", "default", "completed", {}).id
    others = [
        event_message(2, "job.finished", AT, job, "mail.send", "default", "completed", {}),
        event_message(1, "job.finished", AT, new_id(), "mail.send", "default", "completed", {}),
    ]
    assert one.id not in {other.id for other in others}
    assert str(UUID(one.id)) == one.id


def test_a_routing_key_is_cut_at_255_bytes() -> None:
    message = event_message(1, "job.finished", AT, new_id(), "é" * 300, "default", "completed", {})
    assert len(message.routing_key.encode()) <= 255
    custom = event_message(1, "order.paid", AT, None, None, None, None, {"id": 7})
    assert custom.routing_key == "order.paid"
    assert "job_id" not in custom.fields


@pytest.mark.parametrize(
    "url", ["http://x", "jobs", 7, "redis://cache/0?maxlen=many", "amqp://user:hunter2@host:port/"]
)
def test_a_wrong_address_is_refused_without_its_password(app: App, url: Any) -> None:
    with pytest.raises(BadSettings) as refused:
        app.forward("job.*", url, durable="erp")
    assert "hunter2" not in str(refused.value)


def test_addresses_are_shown_without_password() -> None:
    with closing(open_publisher("amqp://ann:hunter2@broker/shop?exchange=jobs")) as publisher:
        assert publisher.shown == "amqp://broker/shop exchange jobs"
    with closing(open_publisher("redis://:hunter2@cache/1")) as publisher:
        assert publisher.shown == "redis://cache/1 stream tidemill.events"
