"""Tests of lanes and watermarks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import a_claim

from tidemill.domain.lanes import SAFETY, Lane, LaneKey, Watermarks

keys = st.builds(LaneKey, st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(-2, 2), st.just(""))
lanes = st.builds(
    lambda key, low: Lane(key.queue, key.tenant, key.priority, low),
    keys,
    st.integers(0, 50_000),
)
claims = st.builds(
    lambda key, seq: a_claim(queue=key.queue, tenant=key.tenant, priority=key.priority, seq=seq),
    keys,
    st.none() | st.integers(1, 100_000),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("seen"), st.lists(lanes, max_size=6, unique_by=lambda lane: lane.key)),
        st.tuples(st.just("claimed"), st.lists(claims, max_size=4)),
        st.tuples(st.just("add"), keys),
    ),
    max_size=8,
)


def test_a_lane_has_a_key() -> None:
    assert Lane("q", "t", 3, low=7, quota=2).key == LaneKey("q", "t", 3)


@given(events)
def test_a_watermark_never_skips_uncommitted_rows(events_drawn: list[tuple[str, object]]) -> None:
    marks = Watermarks()
    # Below these numbers no job is left, as far as is known.
    safe: dict[LaneKey, int] = {}
    for what, about in events_drawn:
        if what == "seen" and isinstance(about, list):
            marks.seen(about)
            safe = {lane.key: lane.low for lane in about}
        elif what == "claimed" and isinstance(about, list):
            marks.claimed(about)
            for claim in about:
                key = LaneKey(claim.queue, claim.tenant, claim.priority)
                if claim.seq is not None:
                    safe[key] = max(safe.get(key, 0), claim.seq - SAFETY)
        elif isinstance(about, LaneKey):
            marks.add(about)
            safe.setdefault(about, 0)
        assert {lane.key: lane.low for lane in marks.lanes()} == {
            key: max(low, 0) for key, low in safe.items()
        }


@given(st.lists(lanes, unique_by=lambda lane: lane.key), st.lists(claims))
def test_claims_only_raise_a_watermark(given_lanes: list[Lane], made: list[object]) -> None:
    marks = Watermarks()
    marks.seen(given_lanes)
    before = {lane.key: lane.low for lane in marks.lanes()}
    marks.claimed(made)  # type: ignore[arg-type]
    after = {lane.key: lane.low for lane in marks.lanes()}
    assert before.keys() <= after.keys()
    assert all(after[key] >= low for key, low in before.items())


@given(st.lists(lanes, unique_by=lambda lane: lane.key), st.integers(0, 9))
def test_a_higher_priority_of_a_tenant_comes_first(given_lanes: list[Lane], turns: int) -> None:
    marks = Watermarks()
    marks.seen(given_lanes)
    for _ in range(turns + 1):
        for tenant in {lane.tenant for lane in given_lanes}:
            ordered = [lane for lane in marks.lanes() if lane.tenant == tenant]
            assert all(one.priority >= other.priority for one, other in pairwise(ordered))


@given(st.lists(lanes, unique_by=lambda lane: lane.key), st.integers(1, 2**31 - 1), st.integers(0, 9))
def test_every_lane_is_offered_once_per_call(given_lanes: list[Lane], quota: int, turns: int) -> None:
    marks = Watermarks()
    marks.seen(given_lanes)
    for _ in range(turns + 1):
        assert sorted(marks.lanes(quota)) == sorted(lane._replace(quota=quota) for lane in given_lanes)


@given(st.sets(st.text(max_size=3), min_size=1, max_size=8), st.integers(0, 20))
def test_tenants_take_turns_at_the_first_place(tenants: set[str], begun: int) -> None:
    marks = Watermarks()
    marks.seen(Lane("q", tenant, 0) for tenant in tenants)
    for _ in range(begun):
        marks.lanes()
    first = Counter(marks.lanes()[0].tenant for _ in range(len(tenants) * 3))
    assert first == dict.fromkeys(tenants, 3)


@given(st.sets(st.text(max_size=3), min_size=2, max_size=6))
def test_the_rotation_keeps_the_order_of_tenants(tenants: set[str]) -> None:
    marks = Watermarks()
    marks.seen(Lane("q", tenant, 0) for tenant in tenants)
    one, other = ([lane.tenant for lane in marks.lanes()] for _ in range(2))
    assert other == one[1:] + one[:1]


def test_a_new_reading_replaces_the_watermarks() -> None:
    marks = Watermarks()
    marks.claimed([a_claim(seq=90_000)])
    marks.seen([Lane("default", "default", 0, low=12)])  # a row with an old number was committed late
    assert [lane.low for lane in marks.lanes()] == [12]
    marks.seen([])
    assert marks.lanes() == []


def test_an_added_lane_starts_at_zero_and_keeps_its_mark() -> None:
    marks = Watermarks()
    key = LaneKey("q", "t", 0)
    marks.add(key)
    assert marks.lanes() == [Lane("q", "t", 0, low=0)]
    marks.claimed([a_claim(queue="q", tenant="t", seq=SAFETY + 100)])
    marks.add(key)
    assert [lane.low for lane in marks.lanes()] == [100]


def test_a_limited_claim_does_not_move_the_plain_lane() -> None:
    marks = Watermarks()
    marks.seen([Lane("q", "t", 0, low=7)])
    marks.claimed([a_claim(queue="q", tenant="t", priority=0, seq=90_000, limits=("x",))])
    assert [(lane.key, lane.low) for lane in marks.lanes()] == [(LaneKey("q", "t", 0), 7)]


def test_ageing_raises_a_lane_until_its_head_moves() -> None:
    marks = Watermarks()
    low, high = Lane("q", "t", 0, low=1), Lane("q", "t", 3, low=2)
    marks.seen([low, high], at=100.0)
    assert [lane.priority for lane in marks.lanes(at=120.0, ageing=10.0)] == [3, 0]
    marks.seen([low, high._replace(low=9)], at=140.0)
    assert [lane.priority for lane in marks.lanes(at=140.0, ageing=10.0)] == [0, 3]
    assert [lane.priority for lane in marks.lanes(at=140.0)] == [3, 0]
    marks.seen([low._replace(low=5), high._replace(low=9)], at=150.0)
    assert [lane.priority for lane in marks.lanes(at=151.0, ageing=10.0)] == [3, 0]
