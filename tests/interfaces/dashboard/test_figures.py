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
from tidemill.dashboard.cached_stats import KEPT, QUICK, REST, TIMES, CachedStats, StatsPending
from tidemill.dashboard.page_request import LIVE
from tidemill.web.problems import Problem
from tidemill.web.threads import Threads

KEY = ("overview", "1h")
SLOW = 0.5
PATIENCE = 60.0


class StatsHarness:
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
def harness() -> Iterator[StatsHarness]:
    made = StatsHarness()
    yield made
    made.may_end.set()
    made.threads.close()


def test_quick_figures_are_computed_for_every_request(harness: StatsHarness) -> None:
    harness.takes = QUICK / 2
    assert [harness.look(), harness.look(new=True), harness.look()] == [1, 2, 3]


def test_slow_figures_are_reused_for_a_while(harness: StatsHarness) -> None:
    assert [harness.look(), harness.look(), harness.look()] == [1, 1, 1]
    assert harness.made == 1


def test_an_outdated_figure_is_refreshed_in_the_background(harness: StatsHarness) -> None:
    assert harness.look() == 1
    harness.later(SLOW * REST + 0.1)
    harness.may_end.clear()
    assert [harness.look(), harness.look()] == [1, 1]  # the second computation is running and blocked
    asyncio.run(wait_until(lambda: harness.made == 2))
    harness.may_end.set()
    harness.settle()
    assert harness.look() == 2


def test_a_figure_beyond_its_maximum_age_is_not_shown(harness: StatsHarness) -> None:
    assert harness.look() == 1
    harness.later(KEPT)
    assert harness.look() == 2


def test_a_figure_of_a_moderate_query_is_kept_for_a_shorter_time(harness: StatsHarness) -> None:
    harness.takes = 2 * QUICK
    assert [harness.look(), harness.look()] == [1, 1]
    harness.later(2 * QUICK * TIMES)
    assert harness.look() == 2


def test_an_action_invalidates_cached_figures(harness: StatsHarness) -> None:
    assert harness.look() == 1
    harness.figures.acted()
    assert harness.look() == 2


def test_a_computation_that_began_before_an_action_is_not_cached(harness: StatsHarness) -> None:
    async def ask_twice() -> list[int]:
        harness.may_end.clear()
        first = asyncio.create_task(harness.figures.of(KEY, harness.ask))
        await wait_until(lambda: harness.made == 1)
        harness.figures.acted()
        second = asyncio.create_task(harness.figures.of(KEY, harness.ask))
        await wait_until(lambda: harness.made == 2)
        harness.may_end.set()
        return [await first, await second]

    assert asyncio.run(ask_twice()) == [1, 2]
    assert harness.look() == 2


def test_the_script_gets_new_figures_only_or_must_retry(harness: StatsHarness) -> None:
    assert harness.look(new=True) == 1
    with pytest.raises(StatsPending):
        harness.look(new=True)
    harness.later(SLOW * REST + 0.1)
    assert harness.look(new=True) == 2


def test_concurrent_requests_with_equal_change_counts_share_a_computation(harness: StatsHarness) -> None:
    async def crowd() -> list[int]:
        harness.may_end.clear()
        tasks = [
            asyncio.create_task(harness.figures.of(KEY, harness.ask, heard=heard)) for heard in (1, 1, 2, 1)
        ]
        await wait_until(lambda: harness.made == 2)
        harness.may_end.set()
        return [await task for task in tasks]

    found = asyncio.run(crowd())
    assert found[0] == found[1] == found[3] != found[2]


def test_a_cancelled_request_does_not_cancel_the_computation_of_others(harness: StatsHarness) -> None:
    async def leave() -> int:
        harness.may_end.clear()
        first = asyncio.create_task(harness.figures.of(KEY, harness.ask))
        second = asyncio.create_task(harness.figures.of(KEY, harness.ask))
        await wait_until(lambda: harness.made == 1)
        first.cancel()
        harness.may_end.set()
        return await second

    assert asyncio.run(leave()) == 1


def test_an_error_reaches_the_waiting_request_and_keeps_the_cached_figure(harness: StatsHarness) -> None:
    def wrong() -> int:
        raise ValueError("the store is away")

    with pytest.raises(ValueError, match="away"):
        asyncio.run(harness.figures.of(KEY, wrong))
    assert harness.look() == 1
    harness.later(SLOW * REST + 0.1)
    assert asyncio.run(harness.figures.of(KEY, wrong)) == 1
    harness.settle()
    assert asyncio.run(harness.figures.of(KEY, wrong)) == 1


def test_a_background_refresh_does_not_take_the_last_thread() -> None:
    harness = StatsHarness(threads=1)
    try:
        assert harness.look() == 1
        harness.later(SLOW * REST + 0.1)
        busy = threading.Event()
        held = harness.threads.begin(lambda: busy.wait(PATIENCE))
        assert held is not None
        assert harness.look() == 1
        assert harness.made == 1
        with pytest.raises(StatsPending):
            harness.look(new=True)
        busy.set()
        assert held.result(PATIENCE)
    finally:
        harness.threads.close()
    with pytest.raises(Problem):
        harness.threads.begin(harness.ask)


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
