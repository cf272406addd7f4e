"""Throttling of job lists: coalesced queries, bounded concurrency, fair order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterator

import httpx
import pytest
from tests.interfaces.rest.kit import Site, site

from tidemill.web.list_throttle import ListThrottle
from tidemill.web.problems import Problem
from tidemill.web.threads import Threads

PATIENCE = 60.0

Story = Callable[[ListThrottle], Awaitable[None]]


def tell(story: Story, *, at_once: int = 1, most: int = 100, aside: float = PATIENCE) -> None:
    """Run a scenario on its own event loop; by default no query is slow enough to step aside."""

    async def all_of_it() -> None:
        async with asyncio.timeout(PATIENCE):
            await story(ListThrottle(threads, at_once, most, aside=aside))

    threads = Threads(8, 100)
    try:
        asyncio.run(all_of_it())
    finally:
        threads.close()


class Slow:
    """A query that blocks until ``go`` is set, and counts its calls."""

    def __init__(self) -> None:
        self.put = 0
        self.began, self.go = asyncio.Event(), threading.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> bytes:
        self.put = number = self.put + 1
        self._loop.call_soon_threadsafe(self.began.set)
        assert self.go.wait(PATIENCE)
        return b"%d" % number


async def settled() -> None:
    """Let the tasks of this loop run until they all wait."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_queued_identical_requests_share_one_query_but_do_not_join_a_running_one() -> None:
    async def story(asking: ListThrottle) -> None:
        slow = Slow()
        first = asyncio.create_task(asking.ask("same", slow))
        await slow.began.wait()
        later = [asyncio.create_task(asking.ask("same", slow)) for _ in range(5)]
        await settled()
        slow.go.set()
        assert await first == b"1"
        assert await asyncio.gather(*later) == [b"2"] * 5
        assert slow.put == 2

    tell(story, at_once=2)  # a slot is free, but an identical query is already running


def test_queries_run_in_order_of_arrival() -> None:
    async def story(asking: ListThrottle) -> None:
        slow, order = Slow(), list[int]()
        asked = [asyncio.create_task(asking.ask("slow", slow))]
        await slow.began.wait()

        def numbered(number: int) -> Callable[[], bytes]:
            def put() -> bytes:
                order.append(number)
                return b""

            return put

        asked += [asyncio.create_task(asking.ask(number, numbered(number))) for number in range(20)]
        await settled()
        slow.go.set()
        await asyncio.gather(*asked)
        assert order == list(range(20))

    tell(story)


def test_the_number_of_concurrent_queries_is_limited() -> None:
    async def story(asking: ListThrottle) -> None:
        slow = [Slow() for _ in range(5)]
        asked = [asyncio.create_task(asking.ask(number, each)) for number, each in enumerate(slow)]
        await asyncio.gather(*(each.began.wait() for each in slow[:2]))
        await settled()
        assert [each.put for each in slow] == [1, 1, 0, 0, 0]
        slow[1].go.set()
        await slow[2].began.wait()
        await settled()
        assert [each.put for each in slow] == [1, 1, 1, 0, 0]
        for each in slow:
            each.go.set()
        await asyncio.gather(*asked)

    tell(story, at_once=2)


def test_a_slow_query_does_not_block_the_queries_behind_it() -> None:
    async def story(asking: ListThrottle) -> None:
        slow = Slow()
        first = asyncio.create_task(asking.ask("slow", slow))
        await slow.began.wait()
        assert await asking.ask("quick", lambda: b"quick") == b"quick"
        assert not first.done()
        slow.go.set()
        await first
        # The slow query gave up its slot early and must not release it a second time.
        assert await asking.ask("quick", lambda: b"again") == b"again"

    tell(story, aside=0.01)


def test_an_error_reaches_every_request_that_shares_the_query() -> None:
    async def story(asking: ListThrottle) -> None:
        slow = Slow()

        def fail() -> bytes:
            raise LookupError("no")

        first = asyncio.create_task(asking.ask("slow", slow))
        await slow.began.wait()
        failed = [asyncio.create_task(asking.ask("bad", fail)) for _ in range(3)]
        await settled()
        slow.go.set()
        found = await asyncio.gather(first, *failed, return_exceptions=True)
        assert [type(each) for each in found[1:]] == [LookupError] * 3
        assert await asking.ask("bad", lambda: b"good") == b"good"

    tell(story)


def test_a_query_without_waiting_requests_is_not_run() -> None:
    async def story(asking: ListThrottle) -> None:
        slow, left = Slow(), Slow()
        first = asyncio.create_task(asking.ask("slow", slow))
        await slow.began.wait()
        gone = asyncio.create_task(asking.ask("left", left))
        await settled()
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
        slow.go.set()
        await first
        assert await asking.ask("next", lambda: b"next") == b"next"
        assert left.put == 0

    tell(story)


def test_a_full_queue_rejects_a_request_at_once_and_accepts_requests_again_later() -> None:
    async def story(asking: ListThrottle) -> None:
        slow = Slow()
        asked = [asyncio.create_task(asking.ask("slow", slow)) for _ in range(2)]
        await slow.began.wait()
        with pytest.raises(Problem) as refused:
            await asking.ask("slow", slow)
        assert (refused.value.status, refused.value.code) == (503, "overloaded")
        slow.go.set()
        await asyncio.gather(*asked)
        assert await asking.ask("more", lambda: b"more") == b"more"

    tell(story, most=2)


# Over HTTP ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shop() -> Iterator[Site]:
    with site(lists=1) as made:
        yield made


def together(shop: Site, path: str, *who: tuple[str, str]) -> list[httpx.Response]:
    """Send the same request from several callers at once."""
    headers = [{"authorization": f"Bearer {shop.key(role, tenant)}"} for role, tenant in who]
    for each in headers:
        shop.client.request("GET", "/api/tasks", headers=each)  # caches the key
    return shop.client.together(*[("GET", path, {"headers": each}) for each in headers])


def test_callers_with_equal_permissions_share_one_query_for_the_same_page(
    shop: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create()
    jobs, asked, wanted, all_there = shop.app.store.jobs, 0, 0, threading.Event()

    def counted(*args: object, **rest: object) -> object:
        nonlocal asked
        asked += 1
        assert all_there.wait(PATIENCE)
        return jobs(*args, **rest)  # type: ignore[arg-type]

    async def heard(asking: ListThrottle, key: Hashable, put: Callable[[], bytes]) -> bytes:
        nonlocal wanted
        wanted += 1
        if wanted == 30:
            all_there.set()
        return await ask(asking, key, put)

    ask = ListThrottle.ask
    monkeypatch.setattr(ListThrottle, "ask", heard)
    monkeypatch.setattr(shop.app.store, "jobs", counted)
    answers = together(shop, "/api/jobs?limit=10", *[("operator", "acme")] * 30)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert asked < 30


def test_tenants_and_roles_with_different_permissions_do_not_share_responses(shop: Site) -> None:
    shop.create(args={"to": "ada", "password": "hunter2"})
    shop.create(args={"to": "bob", "password": "swordfish"}, tenant="other")
    who = [("operator", "acme"), ("viewer", "acme"), ("operator", "other"), ("viewer", "other")] * 8
    for (role, tenant), answer in zip(who, together(shop, "/api/jobs", *who), strict=True):
        (job,) = answer.json()["items"]
        assert job["tenant"] == tenant
        secret = {"acme": "hunter2", "other": "swordfish"}[tenant]
        assert job["args"]["password"] == (secret if role == "operator" else "***")
