"""Tests of the order of limited and unlimited jobs of a lane."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidemill.domain.job import Claim
from tidemill.domain.lanes import SAFETY, Lane, LaneKey
from tidemill.domain.limited_turns import MOST, Turns, first_numbers
from tidemill.ids import new_id

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = 3 * SAFETY
PLAIN = [Lane("q", "t", 0, low=1)]


def limited_lane(number: int, *, tenant: str = "t", priority: int = 0) -> Lane:
    return Lane("q", tenant, priority, low=number, gate="g", limits=("x",))


def a_claim(number: int, *, tenant: str = "t") -> Claim:
    return Claim(
        new_id(), "work", "q", tenant, 0, 1, 4, 0, 1, NOW, NOW, None, None, "{}", None, ("x",), False, number
    )  # fmt: skip


def turns(*lanes: Lane) -> Turns:
    order = Turns()
    order.seen(lanes, replace=True)
    return order


def test_much_newer_limited_jobs_come_later() -> None:
    assert turns(limited_lane(LATE)).come_later(PLAIN)
    assert turns(limited_lane(LATE), limited_lane(LATE + 1)).come_later(PLAIN)


def test_older_limited_jobs_do_not_come_later() -> None:
    assert not turns(limited_lane(1)).come_later(PLAIN)
    assert not turns(limited_lane(SAFETY)).come_later(PLAIN)  # watermarks lag by this much
    assert not turns(limited_lane(LATE), limited_lane(2)).come_later(PLAIN)
    assert not turns().come_later(PLAIN)
    assert not turns(limited_lane(LATE)).come_later([])


@pytest.mark.parametrize(
    "other", [limited_lane(LATE, tenant="u"), limited_lane(LATE, priority=1), limited_lane(LATE, priority=-1)]
)
def test_other_tenants_and_priorities_do_not_wait(other: Lane) -> None:
    assert not turns(other).come_later(PLAIN)
    assert not turns(limited_lane(LATE), other).come_later(PLAIN)


def test_several_priorities_of_unlimited_jobs_cause_no_wait() -> None:
    assert not turns(limited_lane(LATE)).come_later([*PLAIN, Lane("q", "t", 5, low=1)])


def test_limited_jobs_are_next_once_others_caught_up() -> None:
    order = turns(limited_lane(LATE))
    assert order.come_later([Lane("q", "t", 0, low=LATE - SAFETY - 1)])
    assert not order.come_later([Lane("q", "t", 0, low=LATE - SAFETY)])


def test_claims_raise_the_number_until_the_next_reading() -> None:
    order = turns(limited_lane(10))
    order.took([a_claim(LATE + 5), a_claim(LATE), a_claim(1, tenant="unknown")])
    assert order.come_later(PLAIN)
    order.seen([limited_lane(11)], replace=False)
    assert not order.come_later(PLAIN)
    order.seen([limited_lane(LATE)], replace=True)
    assert order.come_later(PLAIN)


def test_a_handoff_is_judged_by_the_finished_jobs() -> None:
    order = Turns()
    assert order.come_later(PLAIN, first_numbers([a_claim(LATE), a_claim(LATE + 9)]))
    assert not order.come_later(PLAIN, first_numbers([a_claim(LATE), a_claim(7)]))
    assert first_numbers([a_claim(3), a_claim(2), a_claim(4, tenant="u")]) == {
        LaneKey("q", "t", 0): 2,
        LaneKey("q", "u", 0): 4,
    }


def test_plenty_means_every_last_claim_was_full() -> None:
    order = Turns()
    assert not order.plenty(["loop"])
    order.gave(["loop", "thread"], full=True)
    assert order.plenty(["loop"])
    assert order.plenty(["loop", "thread"])
    order.gave(["thread"], full=False)
    assert order.plenty(["loop"])
    assert not order.plenty(["loop", "thread"])


def test_too_many_lanes_disable_the_order() -> None:
    lanes = [Lane("q", f"t{n}", 0, low=1) for n in range(MOST + 1)]
    order = turns(*(limited_lane(LATE, tenant=f"t{n}") for n in range(MOST + 1)))
    assert not order.come_later(lanes)
    assert turns(*(limited_lane(LATE, tenant=f"t{n}") for n in range(MOST))).come_later(lanes)
