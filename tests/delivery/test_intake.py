"""Tests of messages of a real RabbitMQ node that become jobs, while the node and the reading process are killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aio_pika import Message
from tests.engine.cluster_kit import eventually
from tests.engine.worker_kit import until
from tests.interfaces.cli_kit import call
from tests.servers.rabbitmq import RabbitNode

from tidemill import App, IntakeMessage, Unique
from tidemill.client.core import client_of
from tidemill.delivery.intake import QueueReader
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.ids import new_id
from tidemill.rabbitmq import connect

WITHIN = 60.0
LONG = 240.0


class Sent(NamedTuple):
    """A message to publish."""

    id: str | None
    body: bytes
    headers: Mapping[str, Any] = {}


class Broker:
    """The queues of one test."""

    def __init__(self, node: RabbitNode) -> None:
        self.node = node
        self.queue = f"orders-{new_id().hex}"
        self.dead = f"{self.queue}.dead"
        asyncio.run(self._create())

    async def _create(self) -> None:
        connection = await connect(self.node.url, "test")
        channel = await connection.channel()
        await channel.declare_queue(self.queue, durable=True)
        await connection.close()

    def publish(self, *messages: Sent) -> None:
        """Publish messages; returns when RabbitMQ has confirmed them."""
        asyncio.run(self._publish(messages))

    async def _publish(self, messages: Sequence[Sent]) -> None:
        connection = await connect(self.node.url, "test")
        channel = await connection.channel()
        exchange = channel.default_exchange
        await asyncio.gather(
            *(
                exchange.publish(
                    Message(sent.body, message_id=sent.id, headers=dict(sent.headers), delivery_mode=2),
                    self.queue,
                )
                for sent in messages
            )
        )
        await connection.close()

    def waiting(self, queue: str | None = None) -> int:
        """The number of messages in a queue, without those that a reader has."""
        return asyncio.run(self._count(queue or self.queue))

    async def _count(self, queue: str) -> int:
        connection = await connect(self.node.url, "test")
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, passive=True)
        await connection.close()
        return int(declared.declaration_result.message_count or 0)

    def dead_letters(self) -> dict[str | None, tuple[bytes, str]]:
        """Take the dead letters: body and reason by the id of the message."""
        return asyncio.run(self._take())

    async def _take(self) -> dict[str | None, tuple[bytes, str]]:
        connection = await connect(self.node.url, "test")
        channel = await connection.channel()
        queue = await channel.get_queue(self.dead)
        letters = {}
        while (message := await queue.get(fail=False)) is not None:
            letters[message.message_id] = message.body, str(message.headers["x-tidemill-reason"])
            assert message.headers["x-tidemill-queue"] == self.queue
            await message.ack()
        await connection.close()
        return letters


@pytest.fixture
def broker(rabbitmq: RabbitNode) -> Broker:
    return Broker(rabbitmq)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    with App(f"sqlite:///{tmp_path}/jobs.db") as app:

        @app.task
        def charge(order: int, currency: str = "eur") -> int:
            return order

        yield app


@contextmanager
def reading(app: App) -> Iterator[QueueReader]:
    """Read the app's only queue on a thread inside the block."""
    (rule,) = client_of(app).intakes
    intake, begun = QueueReader(rule), threading.Event()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    def run() -> None:
        loop.call_soon(begun.set)
        loop.run_until_complete(intake.run(stopping))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    try:
        yield intake
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(WITHIN)
        assert not thread.is_alive()


def order(number: int, id: str | None = None) -> Sent:
    return Sent(id or f"order-{number}", json.dumps({"order": number}).encode())


def orders(app: App) -> Counter[int]:
    """The number of jobs of each order."""
    return Counter(job.args["order"] for job in app.jobs.list(limit=1000).items)


def test_a_message_becomes_one_job_however_often_it_is_delivered(app: App, broker: Broker) -> None:
    app.intake(broker.queue, app.bound_task(task_of(app)), broker=broker.node.url)
    broker.publish(*map(order, range(20)), *map(order, range(10)))
    with reading(app) as intake:
        eventually(lambda: intake.accepted == 30, WITHIN)
        eventually(lambda: broker.waiting() == 0, WITHIN)
    assert orders(app) == Counter(range(20))
    app.testing().drain()
    broker.publish(*map(order, range(5)))  # also after the jobs have ended
    with reading(app) as intake:
        eventually(lambda: intake.accepted == 5, WITHIN)
    assert orders(app) == Counter(range(20))


def task_of(app: App) -> str:
    (name,) = (task.name for task in app.registry if task.name.endswith("charge"))
    return name


POISON = {
    "not-json": (b"{", "the body is not JSON"),
    "no-object": (b"[1]", "not a JSON object"),
    "unknown-argument": (b'{"order": 1, "colour": "red"}', "bad_arguments: "),
    "wrong-type": (b'{"order": "many"}', "bad_arguments: "),
}


def test_a_message_that_can_never_become_a_job_is_kept_with_the_reason(app: App, broker: Broker) -> None:
    app.intake(broker.queue, app.bound_task(task_of(app)), broker=broker.node.url)
    broker.publish(*(Sent(id, body) for id, (body, _) in POISON.items()), order(1))
    with reading(app) as intake:
        eventually(lambda: intake.accepted + intake.refused == 5, WITHIN)
    letters = broker.dead_letters()
    assert set(letters) == set(POISON)
    for id, (body, reason) in POISON.items():
        assert letters[id][0] == body
        assert reason in letters[id][1], letters[id][1]
    assert orders(app) == Counter([1])


def test_a_function_returns_the_arguments_and_a_header_the_id(app: App, broker: Broker) -> None:
    def arguments(message: IntakeMessage) -> dict[str, Any]:
        assert message.json() == {"number": 7}
        return {"order": message.json()["number"], "currency": message.headers["currency"]}

    app.intake(
        broker.queue,
        app.bound_task(task_of(app)),
        broker=broker.node.url,
        arguments=arguments,
        id_header="order-id",
    )
    headers = {"currency": "usd", "order-id": 7, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    broker.publish(*[Sent(None, b'{"number": 7}', headers)] * 3, Sent("no-header", b'{"number": 7}'))
    with reading(app) as intake:
        eventually(lambda: (intake.accepted, intake.refused) == (3, 1), WITHIN)
    assert "it has no header order-id" in broker.dead_letters()["no-header"][1]
    (job,) = app.jobs.list().items
    assert job.args == {"order": 7, "currency": "usd"}


def test_a_message_waits_while_the_store_does_not_take_it(app: App, broker: Broker) -> None:
    failures = iter([StoreUnavailable("away"), StoreUnavailable("away"), RuntimeError("a hook failed")])

    @contextmanager
    def failing(step: object) -> Iterator[None]:
        for error in failures:
            raise error
        yield

    app.around(enqueue=failing)
    app.intake(broker.queue, app.bound_task(task_of(app)), broker=broker.node.url)
    broker.publish(order(1))
    with reading(app) as intake:
        eventually(lambda: intake.accepted == 1, WITHIN)
    assert orders(app) == Counter([1])


def test_a_message_whose_function_always_fails_becomes_a_dead_letter(
    app: App, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.delivery.intake._FIRST", 0.01)

    def arguments(message: IntakeMessage) -> dict[str, Any]:
        raise KeyError("number")

    app.intake(broker.queue, app.bound_task(task_of(app)), broker=broker.node.url, arguments=arguments)
    broker.publish(order(1))
    with reading(app) as intake:
        eventually(lambda: intake.refused == 1, WITHIN)
    assert broker.dead_letters()["order-1"][1] == "failed 5 times: KeyError: 'number'"


def test_a_queue_that_is_created_later_is_read_then(app: App, rabbitmq: RabbitNode) -> None:
    broker = Broker(rabbitmq)
    broker.queue = f"late-{new_id().hex}"
    app.intake(broker.queue, app.bound_task(task_of(app)), broker=broker.node.url)
    with reading(app) as intake:
        eventually(lambda: intake._away, WITHIN)
        asyncio.run(broker._create())
        broker.publish(order(1))
        eventually(lambda: intake.accepted == 1, WITHIN)


# Declarations ------------------------------------------------------------------------------------------------------------


def test_wrong_declarations_are_refused(app: App) -> None:
    task = app.bound_task(task_of(app))
    url = "amqp://user:hunter2@broker/"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"broker": "redis://broker"}, "broker: give the URL of a RabbitMQ server"),
        ({"broker": "amqp://user:hunter2@broker:port/"}, "cannot be read"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"remember": 0}, "remember is 0:00:00"),
    ]
    for given, message in wrong:
        with pytest.raises(BadSettings, match=message) as refused:
            app.intake("orders", task, **{"broker": url, **given})
        assert "hunter2" not in str(refused.value)

    @app.task(unique=Unique())
    def once(order: int) -> None: ...

    with pytest.raises(BadSettings, match="has unique="):
        app.intake("orders", once, broker=url)
    app.intake("orders", task, broker=url)
    with pytest.raises(BadSettings, match="has an intake already"):
        app.intake("orders", task, broker=url)


MODULE = """
from tidemill import App

app = App({store!r})

@app.task
def charge(order: int) -> int:
    return order

app.intake({queue!r}, charge, broker={broker!r}, prefetch=20)
"""


class Process:
    """A process of ``tidemill intake``."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-m", "tidemill", "intake", "shop:app", "--json"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        }
        with (folder / "intake.log").open("ab") as log:
            self.process = subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(WITHIN)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


def write_module(folder: Path, broker: Broker, store: str) -> None:
    text = MODULE.format(store=store, queue=broker.queue, broker=broker.node.url)
    (folder / "shop.py").write_text(text, encoding="utf-8")


def test_the_command_reads_until_it_is_stopped(tmp_path: Path, broker: Broker) -> None:
    store = f"sqlite:///{tmp_path}/jobs.db"
    write_module(tmp_path, broker, store)
    broker.publish(*map(order, range(5)))
    intake = Process(tmp_path)
    try:
        (started,) = intake.line()["started"]
        assert (started["queue"], started["task"]) == (broker.queue, "charge")
        assert "guest" not in started["broker"]
        with App(store) as app:
            until(lambda: len(orders(app)) == 5, "five jobs")
        until(lambda: broker.waiting() == 0, "no message waits")
        intake.process.send_signal(signal.SIGTERM)
        last = intake.line()
        assert intake.process.wait(WITHIN) == 0
    finally:
        with suppress(ProcessLookupError):
            intake.end(signal.SIGKILL)
    assert last == {"accepted": 5, "dead_letters": 0}


def test_the_command_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"none_{new_id().hex}"
    (tmp_path / f"{name}.py").write_text(
        "from tidemill import App\napp = App('memory://')\n", encoding="utf-8"
    )
    done = call("intake", f"{name}:app")
    assert done.exit_code == 2
    assert "the app declares no intake; add app.intake(queue, task, broker=…)" in done.stderr


@pytest.mark.long
def test_no_message_is_lost_or_doubled_while_the_node_and_the_readers_are_killed(
    tmp_path: Path, broker: Broker, migrated_postgres_url: str
) -> None:
    write_module(tmp_path, broker, migrated_postgres_url)
    number, rounds = 600, 4
    readers = [Process(tmp_path), Process(tmp_path)]
    try:
        with App(migrated_postgres_url) as app:
            for part in range(rounds):
                step = number // rounds
                messages = [order(n) for n in range(part * step, (part + 1) * step)]
                broker.publish(*messages, *messages[::10])
                reached = part * step + step // 3
                until(lambda: len(orders(app)) >= min(reached, 1000), "some jobs", LONG)  # noqa: B023
                readers[part % 2].end(signal.SIGKILL)
                if part == 1:
                    broker.node.restart()
                readers[part % 2] = Process(tmp_path)
            until(lambda: len(orders(app)) == number, f"{number} jobs", LONG)
            until(lambda: broker.waiting() == 0, "no message waits", LONG)
            assert orders(app) == Counter(range(number))
        assert broker.dead_letters() == {}
    finally:
        for reader in readers:
            with suppress(ProcessLookupError):
                reader.end(signal.SIGTERM)
