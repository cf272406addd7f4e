"""Tests of schedules declared in code: validation, storage and reconciliation."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT, TO, app_on, on_each_store, send

from tidemill import (
    App,
    Daily,
    Every,
    ManualClock,
)
from tidemill.client.schedules.api import REMOVED
from tidemill.domain.schedules import Source
from tidemill.errors import (
    BadArguments,
    BadSchedule,
    ScheduleExists,
    TaskNotFound,
)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with on_each_store(request, tmp_path) as app:
        yield app


@pytest.fixture
def app() -> Iterator[App]:
    with app_on() as app:
        yield app


# Declared in code --------------------------------------------------------------------------------------------------------


def shop(store: Any, name: str = "shop", *, trigger: Any = None, keys: tuple[str, ...] = ("a", "b")) -> App:
    """One release of the app."""
    app = App(store, clock=ManualClock(MIDNIGHT), name=name)
    app.task(name="send")(send)
    for key in keys:
        app.schedule("send", trigger or Every(HOUR), key=key, args=TO)
    return app


def test_reconciling_adds_updates_and_disables_schedules_as_declared(
    any_app: App, caplog: pytest.LogCaptureFixture
) -> None:
    store = any_app.store
    first = shop(store).reconcile()
    assert (first.added, first.updated, first.disabled) == (("a", "b"), (), ())
    row = any_app.schedules.get("a")
    assert (row.source, row.app, row.enabled) == (Source.CODE, "shop", True)
    second = shop(store).reconcile()
    assert (second.added, second.updated, second.unchanged) == ((), (), 2)
    assert any_app.schedules.get("a") == row
    with caplog.at_level(logging.WARNING, "tidemill.schedules"):
        third = shop(store, trigger=Every(2 * HOUR), keys=("a", "c")).reconcile()
    assert (third.added, third.updated, third.disabled) == (("c",), ("a",), ("b",))
    assert "removed from the code are disabled: b" in caplog.text
    changed, gone = any_app.schedules.get("a"), any_app.schedules.get("b")
    assert (changed.id, changed.trigger, changed.row.revision) == (row.id, Every(2 * HOUR), 2)
    assert (gone.enabled, gone.note) == (False, REMOVED)
    fourth = shop(store).reconcile()
    assert (fourth.updated, fourth.disabled) == (("a", "b"), ("c",))
    assert any_app.schedules.get("b").enabled
    assert any_app.schedules.get("b").note is None


def test_a_schedule_paused_by_an_operator_stays_paused(any_app: App) -> None:
    shop(any_app.store).reconcile()
    any_app.schedules.pause("a", reason="by hand")
    assert shop(any_app.store).reconcile().unchanged == 2
    assert shop(any_app.store, trigger=Daily("06:00")).reconcile().updated == ("a", "b")
    row = any_app.schedules.get("a")
    assert (row.enabled, row.note, row.trigger) == (False, "by hand", Daily("06:00"))


def test_an_app_leaves_schedules_of_other_apps_and_of_run_time_unchanged(
    any_app: App, caplog: pytest.LogCaptureFixture
) -> None:
    any_app.schedules.add("send", Daily("06:00"), "stored", args=TO)
    shop(any_app.store, "shop", keys=("a",)).reconcile()
    other = shop(any_app.store, "other", keys=("a", "stored", "own")).reconcile()
    assert (other.added, other.conflicts, other.disabled) == (("own",), ("a", "stored"), ())
    assert "its key belongs to a schedule of app 'shop'; choose another key" in caplog.text
    assert any_app.schedules.get("a").app == "shop"
    assert any_app.schedules.get("stored").trigger == Daily("06:00")
    assert shop(any_app.store, "other", keys=()).reconcile().disabled == ("own",)
    assert any_app.schedules.get("a").enabled


def test_a_declared_schedule_can_only_be_changed_and_removed_in_code(any_app: App) -> None:
    shop(any_app.store, keys=("a",)).reconcile()
    with pytest.raises(BadSchedule, match="is declared in the code of shop; change it there"):
        any_app.schedules.update("a", overlap="allow")
    with pytest.raises(BadSchedule, match="would come back"):
        any_app.schedules.remove("a")
    shop(any_app.store, keys=()).reconcile()
    any_app.schedules.remove("a")
    assert any_app.schedules.list() == []


def test_an_app_without_a_name_disables_no_schedule(app: App) -> None:
    shop(app.store, keys=("a",)).reconcile()
    nameless = App(app.store, clock=ManualClock(MIDNIGHT))
    assert nameless.name is None
    assert nameless.reconcile().disabled == ()


def test_a_decorator_declares_a_task_and_its_schedule(app: App) -> None:
    @app.scheduled(Daily("02:00"), timezone="Europe/Berlin")
    def clean_up() -> None: ...

    @app.scheduled(Every(HOUR), key="hourly", args={"n": 2})
    @app.task(queue="slow")
    def count(n: int) -> int:
        return n

    assert (clean_up.name, count.options.queue) == ("clean_up", "slow")
    app.reconcile()
    assert {each.key: each.task for each in app.schedules.list()} == {
        "clean_up": "clean_up",
        "hourly": "count",
    }


def test_a_declaration_is_validated_at_once(app: App) -> None:
    with pytest.raises(BadArguments):
        app.schedule("send", Every(HOUR), key="a")
    with pytest.raises(TaskNotFound):
        app.schedule("nothing", Every(HOUR))
    app.schedule("send", Every(HOUR), key="a", args=TO)
    app.schedule("send", Every(HOUR), key="a", args=TO)  # as if the module were loaded twice
    with pytest.raises(ScheduleExists, match="two schedules of tenant default are declared as 'a'"):
        app.schedule("send", Every(2 * HOUR), key="a", args=TO)


def test_the_test_runner_stores_declared_schedules_and_fires_them(any_app: App) -> None:
    ran: list[str] = []

    @any_app.scheduled(Daily("02:00"))
    def clean_up() -> None:
        ran.append("clean")

    testing = any_app.testing()
    testing.drain()
    assert testing.run_until_idle(timedelta(days=3)).completed == 3
    assert ran == ["clean"] * 3
