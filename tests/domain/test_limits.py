"""Tests of limits: free slots, opening times, and grants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemill.domain.breaker import Breaker, BreakerPhase, BreakerState, written
from tidemill.domain.lanes import Lane
from tidemill.domain.limits import (
    ENDLESS,
    LimitKind,
    Rule,
    Use,
    count,
    gate_of,
    grant,
    names_of,
    opens_at,
    room,
    rule_of,
    spent,
    window_of,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
NAMES = ["a", "b", "c", "d"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
periods = st.timedeltas(timedelta(milliseconds=1), timedelta(days=40))
buckets = st.builds(
    lambda most, per, burst: Rule("x", LimitKind.RATE, most, per, burst),
    st.integers(1, 1000),
    periods,
    st.integers(1, 1000),
)
windows = st.builds(lambda most, per: Rule("x", LimitKind.RATE, most, per), st.integers(1, 1000), periods)
lanes = st.builds(
    lambda number, quota, names: Lane("q", f"t{number}", 0, quota=quota, limits=tuple(names)),
    st.integers(0, 10**6),
    st.integers(0, 8),
    st.lists(st.sampled_from(NAMES), max_size=3),
)
requests = st.lists(lanes, max_size=8, unique_by=lambda lane: lane.key)
rooms = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10))


# ------------------------------------------------------------------------------------------------- rules and names


def test_a_rule_of_one_key_overrides_the_general_rule() -> None:
    rules = {"mail": Rule("mail"), "mail/7": Rule("mail/7")}
    assert rule_of("mail/7", rules) is rules["mail/7"]
    assert rule_of("mail/8", rules) is rule_of("mail/8/9", rules) is rule_of("mail", rules) is rules["mail"]
    assert rule_of("post", rules) is rule_of("mailing", rules) is None


def test_only_a_rate_without_a_burst_has_a_window() -> None:
    assert window_of(Rule("x", LimitKind.RATE, 1, SECOND)) == SECOND
    assert window_of(Rule("x", LimitKind.RATE, 1, SECOND, 1)) is None
    assert window_of(Rule("x", LimitKind.CONCURRENCY, 1, SECOND)) is None
    assert window_of(None) is None


@given(st.lists(texts, max_size=4))
def test_a_limit_set_round_trips(names: list[str]) -> None:
    gate = gate_of(names)
    assert names_of(gate) == tuple(names)
    assert gate.isascii()
    assert bool(gate) == bool(names)


def test_a_name_counts_once_per_job() -> None:
    assert count([("a", "b"), None, ("a", "a"), ()]) == {"a": 2, "b": 1}


# ------------------------------------------------------------------------------------------------------------ room


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (None, ENDLESS),
        (Rule("x"), ENDLESS),
        (Rule("x", max=-1), ENDLESS),
        (Rule("x", max=5), 2),
        (Rule("x", max=3), 0),
        (Rule("x", max=1), 0),
        (Rule("x", LimitKind.DEPTH, 1), ENDLESS),
        (Rule("x", LimitKind.RATE, 0, SECOND), ENDLESS),
        (Rule("x", LimitKind.RATE, 1), ENDLESS),
        (Rule("x", LimitKind.RATE, 9, SECOND), 2),
        (Rule("x", LimitKind.RATE, 7, SECOND), 0),
        (Rule("x", LimitKind.RATE, 2, SECOND, 3), 1),
        (Rule("x", LimitKind.BREAKER), ENDLESS),
        (Rule("x", LimitKind.BREAKER, breaker=Breaker("x")), ENDLESS),
    ],
)
def test_free_slots_by_rule(rule: Rule | None, left: int) -> None:
    use = Use("x", used=3, begun=7, full_until_at=NOW + SECOND)
    assert room(rule, use, NOW) == left


def test_a_concurrency_limit_has_no_opening_time() -> None:
    full = Use("x", used=9)
    for rule in (None, Rule("x", max=1), Rule("x", LimitKind.DEPTH, 1)):
        assert opens_at(rule, full, NOW) is None


@pytest.mark.parametrize(
    ("standing", "left", "opening_at"),
    [
        (BreakerState(), ENDLESS, None),
        (BreakerState(BreakerPhase.OPEN, NOW, NOW + SECOND), 0, NOW + SECOND),
        (BreakerState(BreakerPhase.OPEN, NOW, NOW), 1, None),
        (BreakerState(BreakerPhase.HALF_OPEN, NOW), 1, None),
    ],
)
def test_free_slots_of_a_breaker(standing: BreakerState, left: int, opening_at: datetime | None) -> None:
    rule = Rule("x", LimitKind.BREAKER, breaker=Breaker("x", probes=3))
    use = Use("x", used=2, breaker=written(standing))
    assert room(rule, use, NOW) == left
    assert opens_at(rule, use, NOW) == opening_at
    if opening_at is not None:
        assert room(rule, use, opening_at) == 1
        assert room(rule, use, opening_at - TICK) == 0


def test_a_breaker_with_running_probes_has_no_opening_time() -> None:
    rule = Rule("x", LimitKind.BREAKER, breaker=Breaker("x", probes=1))
    for standing in (BreakerState(BreakerPhase.HALF_OPEN, NOW), BreakerState(BreakerPhase.OPEN, NOW, NOW)):
        use = Use("x", used=1, breaker=written(standing))
        assert (room(rule, use, NOW), opens_at(rule, use, NOW)) == (0, None)


def test_the_probes_of_a_breaker_are_limited_per_rest_period() -> None:
    rule = Rule("x", LimitKind.BREAKER, breaker=Breaker("x", probes=2, rest=10 * SECOND))
    half_open = written(BreakerState(BreakerPhase.HALF_OPEN, NOW))
    until = spent(rule, Use("x", breaker=half_open), 2, NOW)
    assert until == NOW + 10 * SECOND
    ended = Use("x", used=0, full_until_at=until, breaker=half_open)
    assert (room(rule, ended, NOW), opens_at(rule, ended, NOW)) == (0, NOW + 5 * SECOND)
    assert (room(rule, ended, NOW + 5 * SECOND), room(rule, ended, NOW + 10 * SECOND)) == (1, 2)
    assert opens_at(rule, ended._replace(used=2), NOW) is None


def test_jobs_of_a_closed_breaker_are_not_counted_as_probes() -> None:
    rule = Rule("x", LimitKind.BREAKER, breaker=Breaker("x"))
    assert spent(rule, Use("x", breaker=written(BreakerState())), 5, NOW) is None
    assert spent(rule, Use("x"), 5, NOW) is None


@given(windows, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_a_window_opens_when_its_oldest_start_leaves(rule: Rule, age: timedelta) -> None:
    assert rule.per is not None
    assume(age < rule.per)
    full = Use("x", begun=rule.max, oldest_at=NOW - age)
    opening_at = opens_at(rule, full, NOW)
    assert room(rule, full, NOW) == 0
    assert opening_at == NOW - age + rule.per
    # The store counts starts after now minus the window: at the opening time the oldest one no longer counts.
    assert NOW - age <= opening_at - rule.per
    assert NOW - age > opening_at - TICK - rule.per


@given(buckets, st.lists(st.tuples(periods, st.integers(1, 50)), max_size=20))
def test_a_bucket_never_exceeds_burst_and_rate(
    rule: Rule, requests_drawn: list[tuple[timedelta, int]]
) -> None:
    assert rule.per is not None
    assert rule.burst is not None
    use, now = Use("x"), NOW
    given: list[tuple[datetime, int]] = []
    for wait, wanted in requests_drawn:
        now += wait
        number = min(wanted, room(rule, use, now))
        if number:
            given.append((now, number))
            use = use._replace(full_until_at=spent(rule, use, number, now))
        for place, (since_at, _) in enumerate(given):
            parts = given[place:]
            filled = (now - since_at + len(parts) * TICK) * rule.max // rule.per
            assert sum(part for _, part in parts) <= rule.burst + filled


@given(buckets, st.data())
def test_a_start_reduces_the_free_slots_of_a_bucket(rule: Rule, data: st.DataObject) -> None:
    assert rule.burst is not None
    first = data.draw(st.integers(0, rule.burst))
    second = data.draw(st.integers(0, rule.burst - first))
    use = Use("x", full_until_at=spent(rule, Use("x"), first, NOW))
    assert room(rule, use, NOW) == rule.burst - first
    use = use._replace(full_until_at=spent(rule, use, second, NOW))
    assert room(rule, use, NOW) == rule.burst - first - second


@given(buckets, periods)
def test_a_bucket_opens_exactly_at_the_predicted_time(rule: Rule, later: timedelta) -> None:
    assert rule.burst is not None
    full = Use("x", full_until_at=spent(rule, Use("x"), rule.burst, NOW))
    assert room(rule, full, NOW) == 0
    opening_at = opens_at(rule, full, NOW)
    assert opening_at is not None
    assert opening_at > NOW
    assert room(rule, full, opening_at) >= 1
    assert room(rule, full, opening_at - TICK) == 0
    assert opens_at(rule, full, opening_at) is None
    assert 1 <= room(rule, full, opening_at + later) <= rule.burst


def test_an_idle_bucket_refills_up_to_its_burst() -> None:
    rule = Rule("x", LimitKind.RATE, 2, 10 * SECOND, 3)
    use = Use("x", full_until_at=spent(rule, Use("x"), 3, NOW))
    assert use.full_until_at == NOW + 15 * SECOND
    assert [room(rule, use, NOW + n * SECOND) for n in (0, 5, 10, 15, 99)] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize("rule", [None, Rule("x", max=2), Rule("x", LimitKind.RATE, 2, SECOND)])
def test_only_a_bucket_has_a_fill_time(rule: Rule | None) -> None:
    assert spent(rule, Use("x"), 1, NOW) is None


# ----------------------------------------------------------------------------------------------------------- grant


@given(requests, rooms, st.integers(0, 20))
def test_a_grant_never_exceeds_the_free_slots(
    requested: list[Lane], free: dict[str, int], limit: int
) -> None:
    granted, _ = grant(requested, free, limit)
    for lane in granted:
        assert 0 < lane.quota <= limit
    for name in NAMES:
        together = sum(lane.quota for lane in granted if name in lane.limits)
        assert min(together, limit) <= free.get(name, 0)


@given(requests, rooms, st.integers(0, 20))
def test_a_grant_is_a_prefix_of_the_request(requested: list[Lane], free: dict[str, int], limit: int) -> None:
    granted, rest = grant(requested, free, limit)
    keys = [lane.key for lane in requested]
    assert [lane.key for lane in rest] == keys[len(keys) - len(rest) :]
    before = [lane for lane in requested if lane not in rest]
    assert [lane.key for lane in granted] == [
        lane.key for lane in before if min(lane.quota, limit, *(free.get(x, 0) for x in lane.limits)) > 0
    ]
    assert granted or not rest


@given(requests, rooms, st.integers(0, 20), st.data())
def test_grants_match_a_greedy_loop(
    requested: list[Lane], free: dict[str, int], limit: int, data: st.DataObject
) -> None:
    """Compare grants with a lane-by-lane loop, whatever the lanes contain."""
    holds = {lane.key: data.draw(st.integers(0, 8)) for lane in requested}

    def greedily() -> dict[str, int]:
        left, many = dict(free), limit
        taken: dict[str, int] = {}
        for lane in requested:
            number = max(min(lane.quota, many, holds[lane.key], *(left.get(x, 0) for x in lane.limits)), 0)
            many -= number
            for name in set(lane.limits) & left.keys():
                left[name] -= number
            taken[lane.tenant] = number
        return taken

    left, many = dict(free), limit
    taken = {lane.tenant: 0 for lane in requested}
    rest = list(requested)
    while rest and many:
        granted, after = grant(rest, left, many)
        for lane in granted:
            number = min(lane.quota, many, holds[lane.key])
            many -= number
            for name in set(lane.limits):
                left[name] -= number
            taken[lane.tenant] += number
        assert len(after) < len(rest)
        rest = list(after)
    assert taken == greedily()


def test_lanes_share_slots_that_cannot_run_out() -> None:
    requested = [Lane("q", f"t{n}", 0, limits=("a",)) for n in range(9)]
    granted, rest = grant(requested, {"a": 5}, 5)
    assert [lane.quota for lane in granted] == [5] * 9
    assert not rest
    granted, rest = grant(requested, {"a": 4}, 5)
    assert [lane.quota for lane in granted] == [4]
    assert list(rest) == requested[1:]


def test_a_lane_with_an_unknown_name_is_left_out() -> None:
    requested = [Lane("q", "a", 0, limits=("a", "busy")), Lane("q", "b", 0), Lane("q", "c", 0, limits=("a",))]
    granted, rest = grant(requested, {"a": 2}, 5)
    assert [(lane.tenant, lane.quota) for lane in granted] == [("b", 5), ("c", 2)]
    assert not rest
