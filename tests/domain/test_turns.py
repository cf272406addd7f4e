"""Whose turn it is: those without limits, or those behind the gates of their lane."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidemill.domain.job import Claim
from tidemill.domain.lanes import SAFETY, Lane, LaneKey
from tidemill.domain.turns import MOST, Turns, first_numbers
from tidemill.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = 3 * SAFETY
PLAIN = [Lane("q", "t", 0, low=1)]


def behind(number: int, *, tenant: str = "t", priority: int = 0) -> Lane:
    return Lane("q", tenant, priority, low=number, gate="g", limits=("x",))


def a_claim(number: int, *, tenant: str = "t") -> Claim:
    return Claim(
        new_id(), "work", "q", tenant, 0, 1, 4, 0, 1, NOW, NOW, None, None, "{}", None, ("x",), False, number
    )  # fmt: skip


def turns(*lanes: Lane) -> Turns:
    made = Turns()
    made.seen(lanes, anew=True)
    return made


def test_who_came_after_many_others_of_the_same_lane_comes_later() -> None:
    assert turns(behind(LATE)).come_later(PLAIN)
    assert turns(behind(LATE), behind(LATE + 1)).come_later(PLAIN)


def test_who_came_before_or_at_the_same_time_does_not() -> None:
    assert not turns(behind(1)).come_later(PLAIN)
    assert not turns(behind(SAFETY)).come_later(PLAIN)  # marks lag behind by so much
    assert not turns(behind(LATE), behind(2)).come_later(PLAIN)
    assert not turns().come_later(PLAIN)
    assert not turns(behind(LATE)).come_later([])


@pytest.mark.parametrize(
    "other", [behind(LATE, tenant="u"), behind(LATE, priority=1), behind(LATE, priority=-1)]
)
def test_nobody_waits_for_another_tenant_or_priority(other: Lane) -> None:
    assert not turns(other).come_later(PLAIN)
    assert not turns(behind(LATE), other).come_later(PLAIN)


def test_where_those_without_limits_have_several_priorities_nobody_waits() -> None:
    assert not turns(behind(LATE)).come_later([*PLAIN, Lane("q", "t", 5, low=1)])


def test_when_the_others_have_come_so_far_it_is_their_turn() -> None:
    found = turns(behind(LATE))
    assert found.come_later([Lane("q", "t", 0, low=LATE - SAFETY - 1)])
    assert not found.come_later([Lane("q", "t", 0, low=LATE - SAFETY)])


def test_what_is_claimed_raises_their_number_and_a_new_look_puts_it_right() -> None:
    found = turns(behind(10))
    found.took([a_claim(LATE + 5), a_claim(LATE), a_claim(1, tenant="unknown")])
    assert found.come_later(PLAIN)
    found.seen([behind(11)], anew=False)
    assert not found.come_later(PLAIN)
    found.seen([behind(LATE)], anew=True)
    assert found.come_later(PLAIN)


def test_heirs_are_judged_by_the_numbers_of_those_who_ended() -> None:
    found = Turns()
    assert found.come_later(PLAIN, first_numbers([a_claim(LATE), a_claim(LATE + 9)]))
    assert not found.come_later(PLAIN, first_numbers([a_claim(LATE), a_claim(7)]))
    assert first_numbers([a_claim(3), a_claim(2), a_claim(4, tenant="u")]) == {
        LaneKey("q", "t", 0): 2,
        LaneKey("q", "u", 0): 4,
    }


def test_there_is_plenty_where_the_last_claim_of_each_kind_was_full() -> None:
    found = Turns()
    assert not found.plenty(["loop"])
    found.gave(["loop", "thread"], full=True)
    assert found.plenty(["loop"])
    assert found.plenty(["loop", "thread"])
    found.gave(["thread"], full=False)
    assert found.plenty(["loop"])
    assert not found.plenty(["loop", "thread"])


def test_of_very_many_lanes_none_is_kept_back() -> None:
    lanes = [Lane("q", f"t{n}", 0, low=1) for n in range(MOST + 1)]
    found = turns(*(behind(LATE, tenant=f"t{n}") for n in range(MOST + 1)))
    assert not found.come_later(lanes)
    assert turns(*(behind(LATE, tenant=f"t{n}") for n in range(MOST))).come_later(lanes)
