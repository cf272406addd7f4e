"""What a worker knows of gates: whom it asks, who sleeps, and who is woken."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.gates import MOST, Gates
from tidemill.domain.job import Claim
from tidemill.domain.lanes import Lane
from tidemill.domain.limits import Rule, gate_of
from tidemill.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def a_lane(*limits: str, priority: int = 0) -> Lane:
    return Lane("q", "t", priority, gate=gate_of(limits), limits=limits)


def a_claim(lane: Lane) -> Claim:
    return Claim(
        new_id(), "work", lane.queue, lane.tenant, lane.priority, 1, 4, 0, 1, NOW, NOW, None, None, "{}", None, lane.limits, False, 1
    )  # fmt: skip


def answer(gates: Gates, asked: Sequence[Lane], *gave: Lane, more: bool = False) -> bool:
    return gates.answered(asked, [a_claim(lane) for lane in gave], more=more)


A, B, C = a_lane("a"), a_lane("b"), a_lane("c")


def test_gates_are_asked_by_priority_and_in_turn() -> None:
    gates = Gates()
    high = a_lane("high", priority=5)
    gates.seen([A, B, high, C])
    first = gates.ask(2, {})
    assert first == [high, A]
    answer(gates, first, high, A)
    assert gates.ask(3, {}) == [high, B, C]


def test_a_gate_that_gave_nothing_sleeps_until_it_is_seen_again() -> None:
    gates = Gates()
    gates.seen([A, B])
    assert answer(gates, gates.ask(9, {}), A)
    assert gates.waiting
    assert gates.ask(9, {}) == [A]
    gates.seen([B])
    assert gates.ask(9, {}) == [B]


def test_one_that_might_have_given_more_stays_awake() -> None:
    gates = Gates()
    gates.seen([A, B])
    assert not answer(gates, gates.ask(9, {}), A, more=True)
    assert gates.ask(9, {}) == [A, B]


def test_what_is_given_back_wakes_as_many_as_it_makes_room_for() -> None:
    gates = Gates()
    sleepers = [a_lane("all", f"key/{n}") for n in range(5)]
    gates.seen(sleepers)
    answer(gates, gates.ask(9, {}))
    assert gates.ask(9, {}) == []
    gates.freed({"all": 2})
    assert gates.ask(9, {}) == sleepers[:2]
    gates.freed({"key/4": 1, "nobody waits for this": 3})
    assert gates.ask(9, {}) == [sleepers[4]]


def test_a_limit_the_worker_fills_by_itself_is_not_asked_for() -> None:
    held: dict[str, int] = {"a": 2, "b": 1}
    gates = Gates(held)
    gates.seen([A, B, C])
    rules = {name: Rule(name, max=2) for name in "abc"}
    assert gates.ask(9, rules) == [B, C]
    held["a"] = 1
    gates.freed({"a": 1})
    assert gates.ask(9, rules) == [A]


def test_closed_ones_sleep_from_the_beginning_and_those_that_are_gone_are_forgotten() -> None:
    gates = Gates()
    gates.seen([A, B], closed={A.key})
    assert gates.ask(9, {}) == [B]
    answer(gates, [B])
    gates.gone({A.key})
    assert gates.lanes == [A]
    gates.freed({"b": 1})
    assert gates.ask(9, {}) == []


def test_no_more_are_kept_in_mind_than_there_is_room_for() -> None:
    gates = Gates()
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
def test_every_gate_is_asked_or_asleep_and_never_asked_twice_at_once(
    acts: list[tuple[str, int, bool]],
) -> None:
    gates = Gates()
    lanes = [a_lane("all", f"k{n}") for n in range(4)]
    gates.seen(lanes)
    for act, number, gave in acts:
        if act == "ask":
            asked = gates.ask(number, {})
            assert len({lane.key for lane in asked}) == len(asked)
            answer(gates, asked, *(asked if gave else ()))
        elif act == "free":
            gates.freed({"all": number, f"k{number}": 1})
        else:
            gates.seen(lanes[: number + 1])
    gates.seen(lanes)
    assert {lane.key for lane in gates.ask(9, {})} == {lane.key for lane in lanes}


def test_one_behind_which_nobody_took_over_is_not_asked_before_somebody_is_seen_there() -> None:
    gates = Gates()
    gates.seen([A, B])
    answer(gates, gates.ask(9, {}), A, B)
    gates.emptied([A.key])
    assert gates.ask(9, {}) == [B]
    gates.freed({"a": 1})
    assert gates.ask(9, {}) == []
    gates.seen([A])
    assert gates.ask(9, {}) == [A]


def test_what_is_given_back_wakes_those_who_wait_and_not_those_behind_which_nobody_is() -> None:
    gates = Gates()
    first, second = a_lane("all", "key/1"), a_lane("all", "key/2")
    gates.seen([first, second])
    answer(gates, gates.ask(9, {}))
    gates.emptied([first.key])
    gates.freed({"all": 1})
    assert gates.ask(9, {}) == [second]


def test_nothing_is_kept_in_mind_of_a_gate_that_is_not_known() -> None:
    gates = Gates()
    gates.emptied([A.key])
    gates.seen([A])
    assert gates.ask(9, {}) == [A]
