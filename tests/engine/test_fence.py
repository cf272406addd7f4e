"""Tests of a runner's fence, which opens when confirmed heartbeats stop arriving."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.clock import ManualClock
from tidemill.engine.runner.watchdog import LOOKS, STALL, Fence
from tidemill.ids import new_id

TENTH = timedelta(seconds=0.1)


class Watched:
    def __init__(self) -> None:
        self.clock, self.lost = ManualClock(), 0
        self.fence = Fence(self.clock, new_id(), limit=30.0, confirmed=0.0)
        self.fence.on_lost = self.lose

    def lose(self) -> None:
        self.lost += 1

    def holds(self) -> bool:
        return self.fence.holds

    def look_for(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.clock.advance(TENTH)
            self.fence.look()


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_the_fence_holds_for_one_lease_after_the_last_confirmed_heartbeat(watched: Watched) -> None:
    watched.clock.advance(timedelta(seconds=20))
    watched.fence.confirm(18.0)
    watched.look_for(27.9)
    assert watched.holds()
    watched.look_for(0.2)
    assert not watched.holds()
    assert watched.lost == 0
    watched.look_for(STALL + 0.1)
    assert watched.lost == 1
    watched.look_for(5)
    assert watched.lost == 1


def test_a_late_heartbeat_closes_the_fence_again(watched: Watched) -> None:
    watched.look_for(30.5)
    assert not watched.holds()
    watched.fence.confirm(29.0)
    assert watched.holds()
    watched.look_for(20)
    assert watched.lost == 0


def test_after_a_stall_unread_heartbeats_count_first(watched: Watched) -> None:
    watched.clock.advance(timedelta(minutes=5))
    for _ in range(LOOKS):
        watched.fence.look()
    watched.clock.advance(timedelta(minutes=5))
    watched.fence.confirm(watched.clock.monotonic())
    watched.look_for(3)
    assert watched.lost == 0


def test_an_older_heartbeat_or_one_from_the_future_is_ignored(watched: Watched) -> None:
    watched.clock.advance(timedelta(seconds=10))
    watched.fence.confirm(9.0)
    watched.fence.confirm(3.0)
    watched.fence.confirm(10**9)
    watched.clock.advance(timedelta(seconds=30))
    assert not watched.holds()


def test_a_jump_of_the_wall_clock_does_not_open_the_fence(watched: Watched) -> None:
    for seconds in (3600, -7200, 60):
        watched.clock.leap(timedelta(seconds=seconds))
        watched.look_for(2)
    assert watched.holds()
    assert watched.lost == 0
