"""The table of enqueue routes: what each route does, and what all of them share."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tidemill import App, Context, Event, Every, ManualClock
from tidemill.client.core import client_of
from tidemill.client.enqueue import routes
from tidemill.client.enqueue.routes import MANY, ROUTES, Enqueuer, Order
from tidemill.errors import PriorityTooHigh

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Mail:
    """An app on a file, with the jobs that its hooks and its events saw."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "jobs.db"
        self.app = App(f"sqlite:///{self.file}", clock=ManualClock(NOW), migrate=True)
        self.send = self.app.task(name="send")(_send)
        self.app.definitions.save("letters", self.send, args={"to": "ada"}, max_concurrent=0)
        self.app.schedules.add(self.send, Every(HOUR), "hourly", args={"to": "ada"})
        self.hooked = 0
        self.published: list[Event] = []
        self.app.middleware(self._hook, only="enqueue")
        self.app.on("job.enqueued", self.published.append)

    def _hook(self, step: Any, proceed: Callable[[], Any]) -> Any:
        self.hooked += len(step.jobs)
        return proceed()

    def on_connection(self) -> None:
        connection = sqlite3.connect(self.file)
        try:
            with connection:
                self.send.using(connection=connection).enqueue(to="ada")
        finally:
            connection.close()

    def follow_up(self) -> None:
        @self.app.task(name="parent")
        def parent(ctx: Context) -> None:
            with ctx.transaction():
                self.send.enqueue(to="ada")

        parent.enqueue()
        self.hooked = 0
        self.published.clear()
        self.app.testing().drain()


def _send(to: str) -> str:
    return to


@pytest.fixture
def mail(tmp_path: Path) -> Iterator[Mail]:
    found = Mail(tmp_path)
    with found.app:
        yield found


WAYS: dict[str, list[tuple[Callable[[Mail], Any], int]]] = {
    "single": [
        (lambda mail: mail.send.enqueue(to="ada"), 1),
        (lambda mail: asyncio.run(mail.send.aenqueue(to="ada")), 1),
        (lambda mail: mail.app.enqueue("send", to="ada"), 1),
        (lambda mail: mail.send.using(priority=3).enqueue(to="ada"), 1),
    ],
    "batch": [
        (lambda mail: mail.send.enqueue_many([{"to": "ada"}, {"to": "alan"}]), 2),
        (lambda mail: asyncio.run(mail.send.aenqueue_many([{"to": "ada"}] * MANY)), MANY),
        (lambda mail: mail.send.using(audit=True).enqueue(to="ada"), 1),
    ],
    "stream": [(lambda mail: mail.send.enqueue_many([{"to": "ada"}] * MANY), MANY)],
    "connection": [(lambda mail: mail.on_connection(), 1)],
    "follow_up": [(lambda mail: mail.follow_up(), 1)],
    "trigger": [
        (lambda mail: mail.app.schedules.trigger("hourly"), 1),
        (lambda mail: mail.app.definitions.trigger("letters"), 1),
    ],
    "backfill": [(lambda mail: mail.app.schedules.backfill("hourly", NOW - 3 * HOUR, NOW - HOUR), 2)],
}
"""The public calls of each route, with the number of jobs that they make."""

CALLS = [(name, number) for name, ways in WAYS.items() for number in range(len(ways))]


def test_every_route_has_a_public_call() -> None:
    assert set(WAYS) == set(ROUTES)


@pytest.mark.parametrize(("name", "number"), CALLS)
def test_every_route_runs_hooks_and_publishes_its_jobs(mail: Mail, name: str, number: int) -> None:
    act, jobs = WAYS[name][number]
    act(mail)
    assert mail.hooked == jobs
    assert len([event for event in mail.published if event.task == "send"]) == jobs
    assert mail.app.jobs.count(task="send") == jobs


@pytest.mark.parametrize(
    ("name", "number"), [each for each in CALLS if each[0] in ("single", "batch", "stream", "connection")]
)
def test_a_call_takes_the_route_of_the_table(
    mail: Mail, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "stream":  # a hook needs to see all the jobs, so that they are not streamed
        client_of(mail.app).hooks.enqueue_middleware.clear()
    taken: list[str] = []
    choose = Enqueuer._order

    def noted(self: Enqueuer, *args: Any, **kwargs: Any) -> Order:
        order = choose(self, *args, **kwargs)
        taken.extend(route for route, known in ROUTES.items() if known is order.route)
        return order

    monkeypatch.setattr(routes.Enqueuer, "_order", noted)
    WAYS[name][number][0](mail)
    assert taken == [name]


@pytest.mark.parametrize(
    ("name", "number"), [each for each in CALLS if each[0] in ("single", "batch", "stream", "connection")]
)
def test_every_call_respects_the_limits_of_the_store(mail: Mail, name: str, number: int) -> None:
    mail.app.control.set("tenant/default", {"max_priority": -1})
    with pytest.raises(PriorityTooHigh):
        WAYS[name][number][0](mail)
    assert mail.app.jobs.count(task="send") == 0


def test_the_choice_for_a_plain_call_is_cached_for_each_tenant(mail: Mail) -> None:
    first, second = mail.send.enqueue(to="ada"), mail.send.enqueue(to="ada")
    with mail.app.tenant("acme"):
        third = mail.send.enqueue(to="ada")
    assert [job.tenant for job in (first, second, third)] == ["default", "default", "acme"]
    assert len({job.id for job in (first, second, third)}) == 3


def test_a_task_declared_again_is_not_taken_for_the_old_one(mail: Mail) -> None:
    mail.send.enqueue(to="ada")
    with App("memory://") as other:
        again = other.task(name="send", queue="elsewhere")(_send)
        assert again.enqueue(to="ada").queue == "elsewhere"
    assert mail.send.enqueue(to="ada").queue == "default"
