"""Tests of ids and clocks."""

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


def millisecond(id: UUID) -> int:
    return id.int >> 80


def test_ids_increase() -> None:
    made = [new_id() for _ in range(10_000)]
    assert all(one < other for one, other in pairwise(made))
    assert all(one.bytes < other.bytes and str(one) < str(other) for one, other in pairwise(made))


def test_an_id_is_a_version_7_uuid() -> None:
    for id in (new_id() for _ in range(1_000)):
        assert id.version == 7
        assert id.variant == RFC_4122
        assert (id.int >> 76) & 0xF == 0b0111
        assert (id.int >> 62) & 0b11 == 0b10


def test_an_id_contains_its_creation_time() -> None:
    for _ in range(100):
        made_at = datetime.fromtimestamp(millisecond(new_id()) / 1000, UTC)
        assert abs(datetime.now(UTC) - made_at) < timedelta(seconds=5)


def test_concurrent_ids_are_unique_and_increase() -> None:
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
    assert len({id for mine in made for id in mine}) == 16_000
    assert all(one < other for mine in made for one, other in pairwise(mine))


def test_ids_keep_increasing_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    readings = iter([2_000_000_000_000_000_000, 1_000_000_000_000_000_000, 1_500_000_000_000_000_000])
    monkeypatch.setattr("tidemill.ids.time.time_ns", lambda: next(readings))
    one, two, three = new_id(), new_id(), new_id()
    assert one < two < three
    assert {millisecond(id) for id in (one, two, three)} == {2_000_000_000_000}


def test_a_full_counter_overflows_into_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_last", 0)
    monkeypatch.setattr("tidemill.ids.time.time_ns", lambda: 2_000_000_000_000_000_000)
    made = [new_id() for _ in range(4_097)]
    assert all(one < other for one, other in pairwise(made))
    assert millisecond(made[4_095]) == 2_000_000_000_000
    assert millisecond(made[4_096]) == 2_000_000_000_001
    assert {id.version for id in made} == {7}


def test_ids_of_one_instant_differ_by_their_random_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.ids.time.time_ns", lambda: 2_000_000_000_000_000_000)
    made = []
    # As if each id came from a separate process.
    for _ in range(100):
        monkeypatch.setattr(ids, "_last", 0)
        made.append(new_id())
    assert len(set(made)) == 100


def test_the_system_clock_is_aware_and_monotonic() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_a_manual_clock_does_not_move_on_its_own() -> None:
    clock: Clock = ManualClock()
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)
    assert clock.monotonic() == clock.monotonic() == 0.0


@given(st.lists(waits, max_size=5))
def test_advancing_moves_both_times_of_a_manual_clock(steps: list[timedelta]) -> None:
    start = datetime(2026, 3, 29, tzinfo=UTC)
    clock = ManualClock(start)
    for step in steps:
        before = clock.now()
        assert clock.advance(step) == clock.now() == before + step
    assert clock.now() == start + sum(steps, timedelta(0))
    assert clock.monotonic() == pytest.approx(sum(step.total_seconds() for step in steps))


@given(st.timedeltas(max_value=timedelta(microseconds=-1)))
def test_a_manual_clock_cannot_be_turned_back(step: timedelta) -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="cannot be turned back"):
        clock.advance(step)
    assert clock.now() == ManualClock().now()
