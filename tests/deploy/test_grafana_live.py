"""The Grafana dashboard over a real Prometheus that scrapes a server and a worker."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from tests.deploy.test_grafana import BOARD
from tests.engine.worker_kit import WorkerProcess, until
from tests.servers.processes import ServiceMissing, free_port
from tests.servers.prometheus import Prometheus, Target, running_prometheus
from tests.services import go_without

from tidemill import App

pytestmark = pytest.mark.long

SHOP = """
from tidemill import App, Fixed

app = App(migrate=True)


@app.task(queue="mail")
def send(number: int) -> int:
    return number


@app.task(queue="post")
def stamp() -> None:
    pass


@app.task(retry=Fixed(max_attempts=2, wait=0))
def fail() -> None:
    raise ConnectionError("the bank is away")


app.schedule(send, "0 4 * * *", "nightly", args={"number": 1})
"""
EXPRESSIONS = [
    pytest.param(target["expr"], id=f"{panel['title']}-{number}")
    for panel in BOARD["panels"]
    for number, target in enumerate(panel["targets"])
]


class Fleet:
    """A store with steady work, and the Prometheus that watches its processes."""

    def __init__(self, app: App, prometheus: Prometheus) -> None:
        self.app, self.prometheus = app, prometheus

    def value_of(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Evaluate an expression of the dashboard as Grafana does, with all tasks."""
        filled = expression.replace("$task", ".*").replace("$__rate_interval", "30s")
        assert "$" not in filled, expression
        return self.prometheus.query(filled)


@contextlib.contextmanager
def repeated(act: Callable[[], object], every: float) -> Iterator[None]:
    """Repeat an action on another thread until the block ends."""
    over = threading.Event()

    def live() -> None:
        act()
        while not over.wait(every):
            act()

    thread = threading.Thread(target=live, name="work")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "shop.py").write_text(SHOP)
    url = f"sqlite:///{folder}/jobs.db"
    environment = {**os.environ, "TIDEMILL_STORE": url, "PYTHONPATH": str(folder)}
    web, health = free_port(), free_port()
    with ExitStack() as stack:
        app = stack.enter_context(App(url, migrate=True))
        key: Any = app.keys.create("prometheus", role="viewer", tenant="*")
        for name, words in {
            "serve": ["serve", "shop:app", "--port", str(web)],
            "worker": ["worker", "shop:app", "--processes", "1", "--health-port", str(health)],
        }.items():
            process = WorkerProcess([sys.executable, "-m", "tidemill", *words], folder / name, environment)
            stack.callback(process.exit_code)
            stack.callback(process.signal, signal.SIGTERM)

        def work() -> None:
            for number in range(5):
                app.enqueue("send", number=number)
            app.enqueue("fail")
            app.archive.run(older_than=timedelta(seconds=1))

        @app.task(queue="mail")
        def send(number: int) -> int:
            return number

        app.definitions.save("monthly", send, args={"number": 2})

        @app.task(queue="post")
        def stamp() -> None: ...

        # Jobs of the other queues hardly wait, so that few scrapes see one of them.
        app.control.pause("queue", "post")
        stamp.enqueue()
        stack.enter_context(repeated(work, 0.5))
        until(lambda: app.jobs.count(status="dead_lettered") > 0, "a job has failed")
        try:
            prometheus = stack.enter_context(
                running_prometheus([Target("store", web, key.secret), Target("worker", health)])
            )
        except ServiceMissing as missing:
            go_without("prometheus", missing)
        yield Fleet(app, prometheus)


def test_prometheus_reads_both_pages(fleet: Fleet) -> None:
    until(
        lambda: fleet.prometheus.targets() == {"store": ("up", ""), "worker": ("up", "")},
        "both targets are up",
    )


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_has_values(fleet: Fleet, expression: str) -> None:
    def has_values() -> bool:
        values = [value for _, value in fleet.value_of(expression)]
        return bool(values) and all(math.isfinite(value) for value in values)

    until(has_values, expression, 60)


def test_the_list_of_tasks_is_that_of_the_store(fleet: Fleet) -> None:
    (variable,) = (item for item in BOARD["templating"]["list"] if item["type"] == "query")
    assert variable["query"] == "label_values(tidemill_jobs_ended_total, task)"

    def tasks() -> set[str]:
        return {labels["task"] for labels, _ in fleet.prometheus.query("tidemill_jobs_ended_total")}

    until(lambda: tasks() == {"send", "fail"}, "both tasks are listed")


def test_the_figures_are_those_of_the_store(fleet: Fleet) -> None:
    """A counter that Prometheus has read lies between the sums before and after it."""

    def ended() -> float:
        return sum(value for _, value in fleet.prometheus.query("tidemill_jobs_ended_total"))

    before = fleet.app.jobs.count(status="dead_lettered")
    until(lambda: ended() > before, "Prometheus has counted the failed jobs")
    rates = {
        labels["status"]: value
        for labels, value in fleet.value_of(
            'sum by (status) (rate(tidemill_jobs_ended_total{task=~"$task"}[$__rate_interval]))'
        )
    }
    assert rates["completed"] > rates["dead_lettered"] > 0
