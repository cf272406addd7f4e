"""Tests of a worker's memory of blocked limited lanes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.job import Claim
from tidemill.domain.lanes import Lane
from tidemill.domain.limited_lanes import MOST, REST, LimitedLanes
from tidemill.domain.limits import Rule, gate_of
from tidemill.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_lane(*limits: str, priority: int = 0) -> Lane:
    return Lane("q", "t", priority, gate=gate_of(limits), limits=limits)


def a_claim(lane: Lane) -> Claim:
    return Claim(
        new_id(), "work", lane.queue, lane.tenant, lane.priority, 1, 4, 0, 1, NOW, NOW, None, None, "{}", None, lane.limits, False, 1
    )  # fmt: skip


def answer(gates: LimitedLanes, requested: Sequence[Lane], *gave: Lane, more: bool = False) -> bool:
    return gates.answered(requested, [a_claim(lane) for lane in gave], more=more)


A, B, C = a_lane("a"), a_lane("b"), a_lane("c")


def test_lanes_are_requested_by_priority_in_turn() -> None:
    gates = LimitedLanes()
    high = a_lane("high", priority=5)
    gates.seen([A, B, high, C])
    first = gates.ask(2, {})
    assert first == [high, A]
    answer(gates, first, high, A)
    assert gates.ask(3, {}) == [high, B, C]


def test_an_empty_lane_is_skipped_until_seen_again() -> None:
    gates = LimitedLanes()
    gates.seen([A, B])
    assert answer(gates, gates.ask(9, {}), A)
    assert gates.waiting
    assert gates.ask(9, {}) == [A]
    gates.seen([B])
    assert gates.ask(9, {}) == [B]


def test_a_lane_with_more_jobs_is_requested_again() -> None:
    gates = LimitedLanes()
    gates.seen([A, B])
    assert not answer(gates, gates.ask(9, {}), A, more=True)
    assert gates.ask(9, {}) == [A, B]


def test_released_slots_wake_as_many_lanes() -> None:
    gates = LimitedLanes()
    sleepers = [a_lane("all", f"key/{n}") for n in range(5)]
    gates.seen(sleepers)
    answer(gates, gates.ask(9, {}))
    assert gates.ask(9, {}) == []
    gates.freed({"all": 2})
    assert gates.ask(9, {}) == sleepers[:2]
    gates.freed({"key/4": 1, "nobody waits for this": 3})
    assert gates.ask(9, {}) == [sleepers[4]]


def test_a_limit_filled_by_the_worker_is_not_requested() -> None:
    held: dict[str, int] = {"a": 2, "b": 1}
    gates = LimitedLanes(held)
    gates.seen([A, B, C])
    rules = {name: Rule(name, max=2) for name in "abc"}
    assert gates.ask(9, rules) == [B, C]
    held["a"] = 1
    gates.freed({"a": 1})
    assert gates.ask(9, rules) == [A]


def test_closed_lanes_are_skipped_and_gone_ones_removed() -> None:
    gates = LimitedLanes()
    gates.seen([A, B], closed={A.key})
    assert gates.ask(9, {}) == [B]
    answer(gates, [B])
    gates.gone({A.key})
    assert gates.lanes == [A]
    gates.freed({"b": 1})
    assert gates.ask(9, {}) == []


def test_the_number_of_remembered_lanes_is_bounded() -> None:
    gates = LimitedLanes()
    lanes = [a_lane(f"n{n}") for n in range(MOST + 10)]
    gates.seen(lanes)
    answer(gates, gates.ask(MOST + 10, {}))
    gates.seen([A])
    assert len(gates.lanes) == MOST


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "free", "see"]), st.integers(0, 3), st.booleans()), max_size=40
    )
)
def test_every_lane_is_requested_once_or_skipped(
    acts: list[tuple[str, int, bool]],
) -> None:
    gates = LimitedLanes()
    lanes = [a_lane("all", f"k{n}") for n in range(4)]
    gates.seen(lanes)
    for act, number, gave in acts:
        if act == "ask":
            requested = gates.ask(number, {})
            assert len({lane.key for lane in requested}) == len(requested)
            answer(gates, requested, *(requested if gave else ()))
        elif act == "free":
            gates.freed({"all": number, f"k{number}": 1})
        else:
            gates.seen(lanes[: number + 1])
    gates.seen(lanes)
    assert {lane.key for lane in gates.ask(9, {})} == {lane.key for lane in lanes}


def test_an_emptied_lane_is_skipped_until_seen_again() -> None:
    gates = LimitedLanes()
    gates.seen([A, B])
    answer(gates, gates.ask(9, {}), A, B)
    gates.emptied([A.key])
    assert gates.ask(9, {}) == [B]
    gates.freed({"a": 1})
    assert gates.ask(9, {}) == []
    gates.seen([A])
    assert gates.ask(9, {}) == [A]


def test_released_slots_wake_no_emptied_lane() -> None:
    gates = LimitedLanes()
    first, second = a_lane("all", "key/1"), a_lane("all", "key/2")
    gates.seen([first, second])
    answer(gates, gates.ask(9, {}))
    gates.emptied([first.key])
    gates.freed({"all": 1})
    assert gates.ask(9, {}) == [second]


def test_emptying_an_unknown_lane_has_no_effect() -> None:
    gates = LimitedLanes()
    gates.emptied([A.key])
    gates.seen([A])
    assert gates.ask(9, {}) == [A]


def test_the_pause_does_not_grow_while_the_limit_is_full() -> None:
    gates = LimitedLanes()
    gates.seen([A])
    answer(gates, gates.ask(9, {}), A)
    now = 0.0
    for _ in range(5):
        requested = gates.ask(9, {})
        assert requested == [A]
        assert gates.answered(requested, [], more=False, now=now)
        gates.seen([A], {A.key}, now)
        now += REST
        gates.seen([A], (), now)


def test_the_pause_of_a_useless_lane_grows_despite_a_full_limit() -> None:
    gates = LimitedLanes()
    gates.seen([A])
    gates.answered(gates.ask(9, {}), [], more=False, now=0.0)
    gates.seen([A], {A.key}, 0.0)
    gates.seen([A], (), REST)
    gates.answered(gates.ask(9, {}), [], more=False, now=REST)
    gates.seen([A], {A.key}, REST)
    gates.seen([A], (), 2 * REST)
    assert gates.ask(9, {}) == []


def test_the_pause_grows_while_the_limit_has_room() -> None:
    gates = LimitedLanes()
    gates.seen([A])
    gates.answered(gates.ask(9, {}), [], more=False, now=0.0)
    gates.seen([A], (), REST)
    gates.answered(gates.ask(9, {}), [], more=False, now=REST)
    gates.seen([A], (), 2 * REST)
    assert gates.ask(9, {}) == []
    gates.seen([A], (), 3 * REST)
    assert gates.ask(9, {}) == [A]
