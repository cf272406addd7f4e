"""Tests of the test runner with coroutines, with and without a running event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.testing.bench import Bench

from tidemill.clock import SystemClock
from tidemill.domain.states import JobState
from tidemill.engine.context import Context
from tidemill.errors import UsageError
from tidemill.testing.runner import Drained, Testing

S = JobState
MINUTE = timedelta(minutes=1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.testing.close()
    bench.store.close()


def test_coroutines_are_drained_with_and_without_a_running_loop(bench: Bench) -> None:
    loops: list[object] = []

    async def work() -> None:
        loops.append(asyncio.get_running_loop())

    def plain() -> None: ...

    async def main() -> Drained:
        bench.put("work")
        bench.put("plain")
        drained = await bench.testing.adrain()
        assert loops[-1] is asyncio.get_running_loop()
        return drained

    bench.put(bench.task(work))
    bench.task(plain)
    assert bench.testing.drain().completed == 1
    assert asyncio.run(main()).completed == 2


def test_a_drain_inside_a_running_loop_raises_and_names_adrain(bench: Bench) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="await adrain"):
            bench.testing.drain()

    asyncio.run(main())


def test_the_clock_is_moved_on_a_running_loop_too(bench: Bench) -> None:
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")

    id = bench.put(bench.task(flaky))
    assert asyncio.run(bench.testing.arun_until_idle()).completed == 1
    assert bench.job(id).attempt == 2


def test_an_exception_is_raised_on_a_running_loop_too(bench: Bench) -> None:
    async def broken() -> None:
        raise ValueError("boom")

    bench.put(bench.task(broken))
    with pytest.raises(ValueError, match="boom"):
        asyncio.run(bench.testing.adrain(raise_errors=True))


def test_a_cancelled_drain_releases_the_job(bench: Bench) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def hangs() -> None:
            begun.set()
            await asyncio.Event().wait()

        bench.put(bench.task(hangs))
        draining = asyncio.create_task(bench.testing.adrain())
        await begun.wait()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining

    asyncio.run(main())
    (job,) = bench.testing.enqueued("hangs")
    assert (job.state, job.attempt) == (S.PENDING, 0)


def test_a_system_clock_cannot_be_advanced(bench: Bench) -> None:
    testing = Testing(bench.store, bench.registry, SystemClock())
    with testing, pytest.raises(UsageError, match="ManualClock"):
        testing.advance(MINUTE)
