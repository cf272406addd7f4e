"""The cache of slow statistics: reuse, refresh, invalidation and errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from tests.interfaces.dashboard.kit import House
from tests.interfaces.rest.kit import declare

from tidemill import App, ManualClock
from tidemill.dashboard.cached_stats import KEPT, QUICK, REST, CachedStats, StatsPending
from tidemill.dashboard.page_request import LIVE
from tidemill.web.problems import Problem
from tidemill.web.threads import Threads

KEY = ("overview", "1h")
SLOW = 0.5
PATIENCE = 60.0


class Desk:
    """Figures that take a set time to compute, with a count of computations."""

    def __init__(self, threads: int = 2) -> None:
        self.clock = ManualClock()
        self.threads = Threads(threads, 2)
        self.figures = CachedStats(self.clock, self.threads)
        self.made = 0
        self.takes = SLOW
        self.may_end = threading.Event()
        self.may_end.set()

    def ask(self) -> int:
        self.made += 1
        number = self.made
        assert self.may_end.wait(PATIENCE)
        self.clock.advance(timedelta(seconds=self.takes))
        return number

    def look(self, **how: object) -> int:
        return asyncio.run(self.figures.of(KEY, self.ask, **how))  # type: ignore[arg-type]

    def later(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def settle(self) -> None:
        """Wait until no computation is running."""
        asyncio.run(wait_until(lambda: not self.figures._making))


async def wait_until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110  (another thread changes the condition)
            await asyncio.sleep(0.001)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.may_end.set()
    made.threads.close()


def test_quick_figures_are_computed_for_every_request(desk: Desk) -> None:
    desk.takes = QUICK / 2
    assert [desk.look(), desk.look(new=True), desk.look()] == [1, 2, 3]


def test_slow_figures_are_reused_for_a_while(desk: Desk) -> None:
    assert [desk.look(), desk.look(), desk.look()] == [1, 1, 1]
    assert desk.made == 1


def test_an_outdated_figure_is_refreshed_in_the_background(desk: Desk) -> None:
    assert desk.look() == 1
    desk.later(SLOW * REST + 0.1)
    desk.may_end.clear()
    assert [desk.look(), desk.look()] == [1, 1]  # the second computation is running and blocked
    asyncio.run(wait_until(lambda: desk.made == 2))
    desk.may_end.set()
    desk.settle()
    assert desk.look() == 2


def test_a_figure_beyond_its_maximum_age_is_not_shown(desk: Desk) -> None:
    assert desk.look() == 1
    desk.later(KEPT)
    assert desk.look() == 2


def test_an_action_invalidates_cached_figures(desk: Desk) -> None:
    assert desk.look() == 1
    desk.figures.acted()
    assert desk.look() == 2


def test_a_computation_that_began_before_an_action_is_not_cached(desk: Desk) -> None:
    async def meanwhile() -> list[int]:
        desk.may_end.clear()
        first = asyncio.create_task(desk.figures.of(KEY, desk.ask))
        await wait_until(lambda: desk.made == 1)
        desk.figures.acted()
        second = asyncio.create_task(desk.figures.of(KEY, desk.ask))
        await wait_until(lambda: desk.made == 2)
        desk.may_end.set()
        return [await first, await second]

    assert asyncio.run(meanwhile()) == [1, 2]
    assert desk.look() == 2


def test_the_script_gets_new_figures_only_or_must_retry(desk: Desk) -> None:
    assert desk.look(new=True) == 1
    with pytest.raises(StatsPending):
        desk.look(new=True)
    desk.later(SLOW * REST + 0.1)
    assert desk.look(new=True) == 2


def test_concurrent_requests_with_equal_change_counts_share_a_computation(desk: Desk) -> None:
    async def crowd() -> list[int]:
        desk.may_end.clear()
        tasks = [asyncio.create_task(desk.figures.of(KEY, desk.ask, heard=heard)) for heard in (1, 1, 2, 1)]
        await wait_until(lambda: desk.made == 2)
        desk.may_end.set()
        return [await task for task in tasks]

    found = asyncio.run(crowd())
    assert found[0] == found[1] == found[3] != found[2]


def test_a_cancelled_request_does_not_cancel_the_computation_of_others(desk: Desk) -> None:
    async def leave() -> int:
        desk.may_end.clear()
        first = asyncio.create_task(desk.figures.of(KEY, desk.ask))
        second = asyncio.create_task(desk.figures.of(KEY, desk.ask))
        await wait_until(lambda: desk.made == 1)
        first.cancel()
        desk.may_end.set()
        return await second

    assert asyncio.run(leave()) == 1


def test_an_error_reaches_the_waiting_request_and_keeps_the_cached_figure(desk: Desk) -> None:
    def wrong() -> int:
        raise ValueError("the store is away")

    with pytest.raises(ValueError, match="away"):
        asyncio.run(desk.figures.of(KEY, wrong))
    assert desk.look() == 1
    desk.later(SLOW * REST + 0.1)
    assert asyncio.run(desk.figures.of(KEY, wrong)) == 1
    desk.settle()
    assert asyncio.run(desk.figures.of(KEY, wrong)) == 1


def test_a_background_refresh_does_not_take_the_last_thread() -> None:
    desk = Desk(threads=1)
    try:
        assert desk.look() == 1
        desk.later(SLOW * REST + 0.1)
        busy = threading.Event()
        held = desk.threads.begin(lambda: busy.wait(PATIENCE))
        assert held is not None
        assert desk.look() == 1
        assert desk.made == 1
        with pytest.raises(StatsPending):
            desk.look(new=True)
        busy.set()
        assert held.result(PATIENCE)
    finally:
        desk.threads.close()
    with pytest.raises(Problem):
        desk.threads.begin(desk.ask)


def test_the_overview_of_a_slow_store_is_cached_until_an_action() -> None:
    clock = ManualClock()
    with App("memory://", migrate=True, clock=clock) as app:
        declare(app)
        depths = app.store.depths

        def slow(**how: object) -> object:
            clock.advance(timedelta(seconds=SLOW))
            return depths(**how)  # type: ignore[arg-type]

        app.store.depths = slow  # type: ignore[method-assign, assignment]
        house = House(app)
        person = house.person("super_admin")
        before = clock.monotonic()
        assert "No jobs are waiting." in person.open("/")
        took = clock.monotonic() - before
        assert took >= SLOW
        before = clock.monotonic()
        assert "No jobs are waiting." in person.open("/")
        assert clock.monotonic() == before
        assert person.ask("GET", "/", headers={LIVE: "1"}).status_code == 204
        assert person.post("/tasks/send", **{"a.to": "ada"}).status_code in (303, 422)
        person.open("/")
        assert clock.monotonic() - before >= SLOW
        house.close()
