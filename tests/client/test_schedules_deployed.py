"""Declared schedules and limits with several deployments of one app."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT, TO, on_each_store, send

from tidemill import App, Every, Limit, ManualClock
from tidemill.domain.releases import ALIVE_FOR, CONFIRM
from tidemill.domain.schedules import Scope
from tidemill.errors import BadSettings

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with on_each_store(request, tmp_path) as app:
        yield app


class Fleet:
    """Deployments of one app, started a minute apart."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.clock = ManualClock(MIDNIGHT)

    def start(self, hours: int, *keys: str, release: str | None = None) -> App:
        self.clock.advance(MINUTE)
        app = App(self.app.store, clock=self.clock, name="shop", release=release)
        app.task(name="send")(send)
        for key in keys:
            scope = Scope.INSTANCE if key.startswith("node") else Scope.CLUSTER
            app.schedule("send", Every(hours * HOUR), key=key, args=TO, scope=scope)
        return app

    def stored(self) -> dict[str, object]:
        rows = self.app.schedules.list()
        return {row.key: row.trigger if row.enabled else None for row in rows}


@pytest.fixture
def fleet(app: App) -> Fleet:
    return Fleet(app)


def test_an_older_deployment_that_reconciles_again_changes_nothing(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    old = fleet.start(1, "a", "gone", "node-a")
    old.reconcile()
    new = fleet.start(2, "a", "new", "node-a")
    new.reconcile()
    news = fleet.stored()
    assert news == {"a": Every(2 * HOUR), "node-a": Every(2 * HOUR), "new": Every(2 * HOUR), "gone": None}
    with caplog.at_level(logging.WARNING, "tidemill.schedules"):
        refused = old.reconcile()
        old.reconcile()
    assert fleet.stored() == news
    assert sorted(refused.refused) == ["a", "gone", "new", "node-a"]
    assert (refused.added, refused.updated, refused.disabled) == ((), (), ())
    (line,) = [line for line in caplog.messages if "not synchronized with this code" in line]
    assert "deployed at 2026-01-01 00:02:00 UTC of the app is newer and alive" in line
    assert "tidemill schedules sync --force" in line


def test_the_higher_release_wins_whatever_the_start_order(fleet: Fleet) -> None:
    fleet.start(2, "a", release="1.10").reconcile()
    late = fleet.start(1, "a", release="1.9")
    assert late.reconcile().refused == ("a",)
    assert fleet.stored() == {"a": Every(2 * HOUR)}
    fleet.start(3, "a", release="1.11").reconcile()
    assert fleet.stored() == {"a": Every(3 * HOUR)}


def test_an_older_release_takes_over_once_the_newer_one_is_gone(fleet: Fleet) -> None:
    old = fleet.start(1, "a", release="1")
    old.reconcile()
    new = fleet.start(2, "a", release="2")
    new.reconcile()
    for _ in range(7):  # both run, and the newer one keeps confirming
        fleet.clock.advance(CONFIRM)
        new.confirm()
        old.confirm()
    assert fleet.stored() == {"a": Every(2 * HOUR)}
    fleet.clock.advance(ALIVE_FOR - timedelta(seconds=1))
    old.confirm()
    assert fleet.stored() == {"a": Every(2 * HOUR)}
    fleet.clock.advance(timedelta(seconds=1))
    old.confirm()
    assert fleet.stored() == {"a": Every(HOUR)}


def test_a_forced_rollback_holds_until_a_newer_release_starts_after_it(fleet: Fleet) -> None:
    new = fleet.start(2, "a", release="2")
    new.reconcile()
    old = fleet.start(1, "a", release="1")
    assert old.reconcile(force=True).updated == ("a",)
    for _ in range(10):
        fleet.clock.advance(CONFIRM)
        new.confirm()
    assert new.reconcile().refused == ("a",)
    assert fleet.stored() == {"a": Every(HOUR)}
    fleet.start(2, "a", release="2").reconcile()
    assert fleet.stored() == {"a": Every(2 * HOUR)}


def test_without_releases_the_latest_start_wins(fleet: Fleet) -> None:
    fleet.start(2, "a").reconcile()
    fleet.start(1, "a").reconcile()
    assert fleet.stored() == {"a": Every(HOUR)}


def test_two_processes_of_one_release_change_nothing(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    first = fleet.start(1, "a", release="7")
    first.reconcile()
    second = fleet.start(1, "a", release="7")
    assert second.reconcile().unchanged == 1
    assert first.reconcile().unchanged == 1
    assert "not synchronized with this code" not in caplog.text


def test_an_app_without_schedules_stores_no_release_record(fleet: Fleet) -> None:
    app = fleet.start(1)
    app.reconcile()
    app.confirm()
    assert fleet.app.store.release_of("shop") is None


def test_a_release_without_schedules_still_disables_those_of_the_previous_one(fleet: Fleet) -> None:
    old = fleet.start(1, "a")
    old.reconcile()
    fleet.start(1).reconcile()
    assert fleet.stored() == {"a": None}
    assert old.reconcile().refused == ("a",)
    assert fleet.stored() == {"a": None}


def test_the_release_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMILL_RELEASE", "2026.11.17-1")
    with App("memory://") as app:
        assert app.deployment().release == "2026.11.17-1"
    with App("memory://", release="7") as app:
        assert app.deployment().release == "7"
    with pytest.raises(BadSettings, match="has no order"):
        App("memory://", release="9f86d08")


def test_a_release_record_that_changes_during_a_reconcile_is_read_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fleet.start(1, "a", release="1"), fleet.start(2, "a", release="2")
    schedules = type(old.store).schedules
    raced: list[App] = []

    def overtaken(store: object, **where: object) -> object:
        rows = schedules(store, **where)  # type: ignore[arg-type]
        if not raced:
            raced.append(new)
            new.reconcile()
        return rows

    monkeypatch.setattr(type(old.store), "schedules", overtaken)
    assert old.reconcile().refused == ("a",)
    assert fleet.stored() == {"a": Every(2 * HOUR)}


# Limits ------------------------------------------------------------------------------------------------------------------


class LimitedFleet(Fleet):
    """Deployments of one app whose task declares a limit and no schedule."""

    def limited(self, most: int, *, release: str | None = None) -> App:
        self.clock.advance(MINUTE)
        app = App(self.app.store, clock=self.clock, name="shop", release=release)
        app.task(name="send", limits=[Limit(most, name="mail")])(send)
        return app

    def most(self) -> int:
        (rule,) = [rule for rule in self.app.store.rules() if rule.name == "mail"]
        return rule.max


@pytest.fixture
def limited(app: App) -> LimitedFleet:
    return LimitedFleet(app)


def start_worker(app: App) -> None:
    """Do what a worker does before its first claim."""
    app.declare_limits()
    app.reconcile()


def test_an_older_deployment_that_restarts_keeps_the_limits_of_a_newer_one(
    limited: LimitedFleet, caplog: pytest.LogCaptureFixture
) -> None:
    old = limited.limited(3)
    start_worker(old)
    new = limited.limited(5)
    start_worker(new)
    assert limited.most() == 5
    with caplog.at_level(logging.WARNING, "tidemill.schedules"):
        start_worker(old)
        start_worker(old)
    assert limited.most() == 5
    (line,) = [line for line in caplog.messages if "limits mail keep the values" in line]
    assert "deployed at 2026-01-01 00:02:00 UTC" in line


def test_the_higher_release_decides_the_value_of_a_limit(limited: LimitedFleet) -> None:
    start_worker(limited.limited(5, release="1.10"))
    start_worker(limited.limited(3, release="1.9"))
    assert limited.most() == 5
    start_worker(limited.limited(7, release="1.11"))
    assert limited.most() == 7


def test_limits_follow_the_older_code_once_the_newer_deployment_is_gone(limited: LimitedFleet) -> None:
    old = limited.limited(3)
    start_worker(limited.limited(5))
    limited.clock.advance(ALIVE_FOR)
    start_worker(old)
    assert limited.most() == 3


def test_an_enqueue_adds_a_missing_limit_and_changes_no_stored_one(limited: LimitedFleet) -> None:
    first = limited.limited(3)
    send_first = first.task(name="send_too", limits=[Limit(3, name="mail")])(send)
    send_first.enqueue(to="ann")
    assert limited.most() == 3
    later = limited.limited(5)
    later.task(name="send_too", limits=[Limit(5, name="mail")])(send).enqueue(to="ann")
    assert limited.most() == 3
    start_worker(later)
    assert limited.most() == 5
