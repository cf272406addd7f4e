"""Laws of ids and clocks."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import waits

from tidemill import ids
from tidemill.clock import Clock, ManualClock, SystemClock
from tidemill.ids import new_id


def millisecond(some: UUID) -> int:
    return some.int >> 80


def test_ids_increase_and_none_comes_twice() -> None:
    made = [new_id() for _ in range(10_000)]
    assert all(one < other for one, other in pairwise(made))
    assert all(one.bytes < other.bytes and str(one) < str(other) for one, other in pairwise(made))


def test_an_id_is_a_uuid_of_version_seven() -> None:
    for some in (new_id() for _ in range(1_000)):
        assert some.version == 7
        assert some.variant == RFC_4122
        assert (some.int >> 76) & 0xF == 0b0111
        assert (some.int >> 62) & 0b11 == 0b10


def test_an_id_tells_when_it_was_made() -> None:
    for _ in range(100):
        made_at = datetime.fromtimestamp(millisecond(new_id()) / 1000, UTC)
        assert abs(datetime.now(UTC) - made_at) < timedelta(seconds=5)


def test_ids_of_many_threads_never_meet_and_increase_in_each() -> None:
    made: list[list[UUID]] = [[] for _ in range(8)]
    gate = threading.Barrier(len(made))

    def make(mine: list[UUID]) -> None:
        gate.wait()
        mine.extend(new_id() for _ in range(2_000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({some for mine in made for some in mine}) == 16_000
    assert all(one < other for mine in made for one, other in pairwise(mine))


def test_ids_keep_increasing_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    readings = iter([2_000_000_000_000_000_000, 1_000_000_000_000_000_000, 1_500_000_000_000_000_000])
    monkeypatch.setattr("tidemill.ids.time.time_ns", lambda: next(readings))
    one, two, three = new_id(), new_id(), new_id()
    assert one < two < three
    assert {millisecond(some) for some in (one, two, three)} == {2_000_000_000_000}


def test_a_full_counter_runs_over_into_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr("tidemill.ids.time.time_ns", lambda: 2_000_000_000_000_000_000)
    made = [new_id() for _ in range(4_097)]
    assert all(one < other for one, other in pairwise(made))
    assert millisecond(made[4_095]) == 2_000_000_000_000
    assert millisecond(made[4_096]) == 2_000_000_000_001
    assert {some.version for some in made} == {7}


def test_two_ids_of_one_instant_differ_by_chance_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.ids.time.time_ns", lambda: 2_000_000_000_000_000_000)
    made = []
    for _ in range(100):  # as if each came from a process of its own
        monkeypatch.setattr(ids, "_last", 0)
        made.append(new_id())
    assert len(set(made)) == 100


def test_the_systems_clock_tells_aware_instants_that_do_not_run_backwards() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_manual_clock_stands_still() -> None:
    clock: Clock = ManualClock()
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    assert clock.monotonic() == clock.monotonic() == 0.0


@given(st.lists(waits, max_size=5))
def test_a_manual_clock_moves_both_its_hands_by_what_it_is_told(steps: list[timedelta]) -> None:
    start = datetime(2026, 3, 29, tzinfo=UTC)
    clock = ManualClock(start)
    for step in steps:
        before = clock.now()
        assert clock.advance(step) == clock.now() == before + step
    assert clock.now() == start + sum(steps, timedelta(0))
    assert clock.monotonic() == pytest.approx(sum(step.total_seconds() for step in steps))


@given(st.timedeltas(max_value=timedelta(microseconds=-1)))
def test_a_manual_clock_is_never_turned_back(step: timedelta) -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="never turned back"):
        clock.advance(step)
    assert clock.now() == ManualClock().now()
