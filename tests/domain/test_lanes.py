"""Laws of lanes and watermarks."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import a_claim

from tidemill.domain.lanes import SAFETY, Lane, LaneKey, Watermarks, shared

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


def test_a_lane_knows_where_it_stands() -> None:
    assert Lane("q", "t", 3, low=7, quota=2).key == LaneKey("q", "t", 3)


@given(events)
def test_a_watermark_never_skips_what_may_still_commit(story: list[tuple[str, object]]) -> None:
    marks = Watermarks()
    safe: dict[LaneKey, int] = {}  # below these numbers nothing is left, or the store said so
    for what, about in story:
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
def test_a_higher_priority_is_always_claimed_first(given_lanes: list[Lane], turns: int) -> None:
    marks = Watermarks()
    marks.seen(given_lanes)
    for _ in range(turns + 1):
        ordered = marks.lanes()
        assert all(one.priority >= other.priority for one, other in pairwise(ordered))


@given(st.lists(lanes, unique_by=lambda lane: lane.key), st.integers(1, 2**31 - 1), st.integers(0, 9))
def test_every_lane_is_offered_once_in_every_turn(given_lanes: list[Lane], quota: int, turns: int) -> None:
    marks = Watermarks()
    marks.seen(given_lanes)
    for _ in range(turns + 1):
        assert sorted(marks.lanes(quota)) == sorted(lane._replace(quota=quota) for lane in given_lanes)


@given(st.sets(st.text(max_size=3), min_size=1, max_size=8), st.integers(0, 20))
def test_each_tenant_has_the_first_place_in_its_turn(tenants: set[str], begun: int) -> None:
    marks = Watermarks()
    marks.seen(Lane("q", tenant, 0) for tenant in tenants)
    for _ in range(begun):
        marks.lanes()
    first = Counter(marks.lanes()[0].tenant for _ in range(len(tenants) * 3))
    assert first == dict.fromkeys(tenants, 3)


@given(st.sets(st.text(max_size=3), min_size=2, max_size=6))
def test_the_rotation_keeps_the_tenants_in_their_round(tenants: set[str]) -> None:
    marks = Watermarks()
    marks.seen(Lane("q", tenant, 0) for tenant in tenants)
    one, other = ([lane.tenant for lane in marks.lanes()] for _ in range(2))
    assert other == one[1:] + one[:1]


def test_a_fresh_reading_replaces_what_was_known() -> None:
    marks = Watermarks()
    marks.claimed([a_claim(seq=90_000)])
    marks.seen([Lane("default", "default", 0, low=12)])  # a row with an old number has committed late
    assert [lane.low for lane in marks.lanes()] == [12]
    marks.seen([])
    assert marks.lanes() == []


def test_a_lane_that_is_only_heard_of_begins_at_the_beginning_and_forgets_nothing() -> None:
    marks = Watermarks()
    key = LaneKey("q", "t", 0)
    marks.add(key)
    assert marks.lanes() == [Lane("q", "t", 0, low=0)]
    marks.claimed([a_claim(queue="q", tenant="t", seq=SAFETY + 100)])
    marks.add(key)
    assert [lane.low for lane in marks.lanes()] == [100]


def test_a_claim_from_a_gate_says_nothing_of_the_lane_beside_it() -> None:
    marks = Watermarks()
    marks.seen([Lane("q", "t", 0, low=7)])
    marks.claimed([a_claim(queue="q", tenant="t", priority=0, seq=90_000, limits=("x",))])
    assert [(lane.key, lane.low) for lane in marks.lanes()] == [(LaneKey("q", "t", 0), 7)]


def test_tenants_side_by_side_get_shares_by_their_weights() -> None:
    lanes = [Lane("q", "a", 0), Lane("q", "b", 0), Lane("r", "c", 0)]
    assert [lane.quota for lane in shared(lanes, 100, {})] == [34, 34, 34]
    assert [lane.quota for lane in shared(lanes, 100, {"a": 2.0})] == [50, 25, 25]
    assert [lane.quota for lane in shared(lanes, 2, {"a": 98.0})] == [2, 1, 1]


def test_one_tenant_alone_at_its_priority_has_no_share_but_all() -> None:
    lanes = [Lane("q", "a", 5), Lane("r", "a", 5), Lane("q", "a", 0), Lane("q", "b", 0)]
    found = shared(lanes, 10, {})
    assert found[:2] == lanes[:2]
    assert [lane.quota for lane in found[2:]] == [5, 5]


def test_a_lane_whose_head_waits_rises_with_time_and_falls_back_when_it_moves() -> None:
    marks = Watermarks()
    low, high = Lane("q", "t", 0, low=1), Lane("q", "t", 3, low=2)
    marks.seen([low, high], at=100.0)
    assert [lane.priority for lane in marks.lanes(at=120.0, ageing=10.0)] == [3, 0]
    marks.seen([low, high._replace(low=9)], at=140.0)
    assert [lane.priority for lane in marks.lanes(at=140.0, ageing=10.0)] == [0, 3]
    assert [lane.priority for lane in marks.lanes(at=140.0)] == [3, 0]
    marks.seen([low._replace(low=5), high._replace(low=9)], at=150.0)
    assert [lane.priority for lane in marks.lanes(at=151.0, ageing=10.0)] == [3, 0]
