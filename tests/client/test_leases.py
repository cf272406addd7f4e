"""Tests of ``app.lease``: one holder at a time, a fencing token, renewal and loss."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.cluster_kit import eventually
from tests.interfaces.cli_kit import call

from tidemill import App, ManualClock
from tidemill.engine.node import process_name
from tidemill.errors import BadSettings, LeaseHeld, LeaseLost, UsageError
from tidemill.stores.open import open_store

TTL = timedelta(minutes=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    url = urls.get(request.param) or request.getfixturevalue("migrated_postgres_url")
    with App(url) as made:
        yield made


def test_one_process_at_a_time_has_the_lease_and_each_gets_a_higher_token(app: App) -> None:
    with app.lease("nightly-index", ttl=TTL) as first:
        assert not first.lost
        first.check()
        with (
            pytest.raises(LeaseHeld, match=f"lease 'nightly-index' is held by {process_name()}; wait"),
            app.lease("nightly-index"),
        ):
            pass
        with app.lease("another"):
            pass
    with app.lease("nightly-index") as second:
        assert second.term == first.term + 1


def test_an_async_block_waits_for_the_lease(app: App) -> None:
    async def hold(order: list[int], number: int) -> None:
        async with app.lease("nightly-index", wait=30) as lease:
            order.append(number)
            await asyncio.sleep(0)
            assert not lease.lost
            order.append(number)

    async def story() -> list[int]:
        order: list[int] = []
        await asyncio.gather(hold(order, 1), hold(order, 2))
        return order

    assert asyncio.run(story()) in ([1, 1, 2, 2], [2, 2, 1, 1])


def test_a_lease_that_an_operator_releases_is_lost_and_the_loss_is_signalled(app: App) -> None:
    told = threading.Event()

    def work() -> None:
        with app.lease("nightly-index", ttl=4, on_lost=told.set) as lease:
            assert app.control.release("app:nightly-index")
            assert told.wait(30)
            assert lease.lost
            with pytest.raises(LeaseLost, match="stop this work"):
                lease.check()

    with pytest.raises(LeaseLost, match="was lost during the block"):
        work()


def test_the_thread_renews_the_lease(app: App) -> None:
    def beat() -> object:
        (row,) = [lease for lease in app.store.leases() if lease.name == "app:nightly-index"]
        return row.beat_at

    with app.lease("nightly-index", ttl=4) as lease:
        first = beat()
        eventually(lambda: beat() != first)
        assert not lease.lost


def test_an_error_of_the_block_is_not_hidden_by_the_loss() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:

        def work() -> None:
            with app.lease("nightly-index", ttl=TTL):
                clock.advance(TTL)
                raise KeyError("own")

        with pytest.raises(KeyError):
            work()


def test_a_lease_that_was_not_renewed_for_most_of_its_length_counts_as_lost() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:
        lease = app.lease("nightly-index", ttl=TTL)

        def work() -> None:
            with lease:
                clock.advance(timedelta(seconds=44))
                assert not lease.lost
                clock.advance(timedelta(seconds=1))
                assert lease.lost

        with pytest.raises(LeaseLost):
            work()
        with pytest.raises(UsageError, match="was used already"):
            work()


def test_a_lease_needs_a_name_and_a_length() -> None:
    with App("memory://") as app:
        with pytest.raises(BadSettings, match="at least 1 second"):
            app.lease("x", ttl=0.5)
        with pytest.raises(BadSettings):
            app.lease("")


def test_the_list_shows_leases_of_programs_with_holder_and_health_and_no_alert(tmp_path: Path) -> None:
    clock, url = ManualClock(), f"sqlite:///{tmp_path}/jobs.db"
    with App(url) as app, app.lease("nightly-index"):
        listed = json.loads(call("leases", "list", "--json", "--store", url).stdout)
        (row,) = [row for row in listed if row["name"] == "app:nightly-index"]
        assert (row["holder_name"], row["health"], row["held"]) == (process_name(), "ok", True)
        assert "ok" in call("leases", "list", "--store", url).stdout
    with closing(open_store(url, clock=clock)) as store:
        (lease,) = store.leases()
        assert (lease.health(clock.now()), lease.is_of_app) == ("free", True)


def test_a_holder_that_does_not_renew_is_late_and_then_expired_without_an_alert_about_duties() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:

        def work() -> None:
            with app.lease("long", ttl=timedelta(days=2)):
                (lease,) = app.store.leases()
                clock.advance(timedelta(hours=25))
                assert lease.health(clock.now()) == "late"
                assert [alert for alert in app.stats.alerts() if alert.code == "stuck_leader"] == []
                clock.advance(timedelta(days=1))
                assert lease.health(clock.now()) == "expired"

        with pytest.raises(LeaseLost):
            work()
