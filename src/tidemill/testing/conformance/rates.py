"""Laws of rates, which are exact at their edges, and of breakers."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tidemill.domain.breaker import Breaker, BreakerPhase, BreakerState, written
from tidemill.domain.limits import LimitKind, Rule, Rules, opens_at
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.limits import Redated
from tidemill.testing.conformance.kit import (
    FAILED,
    HOUR,
    SECOND,
    T0,
    TICK,
    a_job,
    at,
    claim_all,
    finish_all,
    ids_of,
    put,
    put_one,
    together,
    wants,
)
from tidemill.testing.conformance.limited_claims import (
    OPEN,
    Undo,
    at_once,
    by_name,
    claim_within,
    in_time,
    use_of,
    used,
)
from tidemill.testing.conformance.payloads import every_odd_text

S = JobState
TWO_IN_TEN = in_time("x", 2)
REDATED = Redated(frozenset(), frozenset())
GUARDED = Rule("x", LimitKind.BREAKER, breaker=Breaker("x", probes=2))


class WindowLaws:
    """A rate without a burst: no window of its length contains more starts than allowed."""

    def test_a_start_counts_for_exactly_one_window(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("x",)) for _ in range(5)])
        assert ids_of(claim_within(store, TWO_IN_TEN)) == ids[:2]
        assert claim_within(store, TWO_IN_TEN, now=at(10) - TICK) == []
        assert ids_of(claim_within(store, TWO_IN_TEN, now=at(10))) == ids[2:4]
        assert claim_within(store, TWO_IN_TEN, now=at(20) - TICK) == []
        assert ids_of(claim_within(store, TWO_IN_TEN, now=at(20))) == ids[4:]

    def test_the_window_slides(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        begun = [0.0, 4.0, 10.0, 14.0, 20.0]
        for second in begun:
            assert len(claim_within(store, TWO_IN_TEN, now=at(second), limit=1)) == 1
            if second:
                assert claim_within(store, TWO_IN_TEN, now=at(second)) == []
        assert claim_within(store, TWO_IN_TEN, now=at(24) - TICK) == []
        assert len(claim_within(store, TWO_IN_TEN, now=at(24))) == 1

    def test_a_finish_does_not_free_a_rate(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        finish_all(store, claim_within(store, TWO_IN_TEN))
        assert used(store, "x") == [0]
        assert claim_within(store, TWO_IN_TEN, now=at(9)) == []

    def test_starts_of_a_rate_can_be_queried(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        rule = in_time("x", 5)
        claim_within(store, rule, limit=2)
        claim_within(store, rule, now=at(4), limit=3)
        assert use_of(store, "x", rule, now=at(4))[:6] == ("x", 5, 5, None, T0, None)
        assert use_of(store, "x", rule, now=at(10))[:6] == ("x", 5, 3, None, at(4), None)
        assert use_of(store, "x", rule, now=at(14))[:6] == ("x", 5, 0, None, None, None)

    def test_a_window_opens_at_the_predicted_time(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        claim_within(store, TWO_IN_TEN, now=at(1.5), limit=1)
        claim_within(store, TWO_IN_TEN, now=at(3))
        opening_at = opens_at(TWO_IN_TEN, use_of(store, "x", TWO_IN_TEN, now=at(3)), at(3))
        assert opening_at == at(11.5)
        assert claim_within(store, TWO_IN_TEN, now=at(11.5) - TICK) == []
        assert len(claim_within(store, TWO_IN_TEN, now=at(11.5))) == 1

    def test_each_name_has_its_own_window(self, store: Store) -> None:
        slow, fast = in_time("slow", 1, HOUR), in_time("fast", 1, SECOND)
        put(store, *[a_job(limits=(name,)) for name in ("slow", "fast") * 2])
        assert len(claim_within(store, slow, fast)) == 2
        assert [claim.limits for claim in claim_within(store, slow, fast, now=at(1))] == [("fast",)]
        both = store.uses(by_name(slow, fast), ["slow", "fast"], now=at(1))
        assert [use.begun for use in both] == [1, 1]

    def test_a_rate_applies_together_with_a_concurrency_limit(self, store: Store) -> None:
        put(store, *[a_job(limits=("x", "one")) for _ in range(4)])
        rules = (TWO_IN_TEN, at_once("one", 1))
        first = claim_within(store, *rules)
        assert len(first) == 1
        finish_all(store, first)
        second = claim_within(store, *rules, now=at(1))
        assert len(second) == 1
        finish_all(store, second, now=at(1))
        assert claim_within(store, *rules, now=at(2)) == []
        assert len(claim_within(store, *rules, now=at(10))) == 1

    def test_a_longer_window_counts_earlier_starts(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        claim_within(store, in_time("x", 2))
        assert claim_within(store, in_time("x", 2, HOUR), now=at(15)) == []
        assert len(claim_within(store, in_time("x", 3, HOUR), now=at(15))) == 1

    @pytest.mark.parametrize("rule", [in_time("x", 0), Rule("x", LimitKind.RATE, 2)], ids=range(2))
    def test_a_rate_without_a_value_is_no_limit(self, store: Store, rule: Rule) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        assert len(claim_within(store, rule)) == 4

    def test_a_rolled_back_start_does_not_count(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        with suppress(Undo), store.transaction():
            assert len(claim_within(store, TWO_IN_TEN)) == 2
            assert claim_within(store, TWO_IN_TEN) == []
            raise Undo
        assert use_of(store, "x", TWO_IN_TEN).begun == 0
        assert len(claim_within(store, TWO_IN_TEN)) == 2

    @every_odd_text
    def test_any_text_can_have_a_rate(self, store: Store, text: str) -> None:
        rule = in_time(text, 1)
        put(store, *[a_job(limits=(text,)) for _ in range(2)])
        assert len(claim_within(store, rule)) == 1
        assert use_of(store, text, rule, now=at(1))[:6] == (text, 1, 1, None, T0, None)
        assert claim_within(store, rule, now=at(1)) == []


class BucketLaws:
    """A rate with a burst: a burst at once, then evenly."""

    def test_a_burst_starts_at_once_and_the_rest_evenly(self, store: Store) -> None:
        rule = in_time("x", 2, burst=3)
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        assert len(claim_within(store, rule)) == 3
        assert claim_within(store, rule, now=at(5) - TICK) == []
        assert len(claim_within(store, rule, now=at(5))) == 1
        assert claim_within(store, rule, now=at(10) - TICK) == []
        assert len(claim_within(store, rule, now=at(10))) == 1

    def test_an_idle_bucket_holds_at_most_its_burst(self, store: Store) -> None:
        rule = in_time("x", 2, burst=3)
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        claim_within(store, rule)
        assert len(claim_within(store, rule, now=at(3600))) == 3

    def test_a_bucket_is_exact_for_fractional_shares(self, store: Store) -> None:
        rule = in_time("x", 3, SECOND, burst=3)
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        assert len(claim_within(store, rule, limit=2)) == 2
        assert len(claim_within(store, rule)) == 1
        assert claim_within(store, rule) == []

    @pytest.mark.parametrize(("most", "burst"), [(1, 1), (3, 1), (7, 4), (11, 2)])
    def test_a_bucket_opens_at_the_predicted_time(self, store: Store, most: int, burst: int) -> None:
        rule = in_time("x", most, SECOND, burst=burst)
        put(store, *[a_job(limits=("x",)) for _ in range(burst + 6)])
        now = T0
        assert len(claim_within(store, rule)) == burst
        for _ in range(5):
            opening_at = opens_at(rule, use_of(store, "x", rule, now=now), now)
            assert opening_at is not None
            assert claim_within(store, rule, now=opening_at - TICK) == []
            assert len(claim_within(store, rule, now=opening_at)) == 1
            now = opening_at

    def test_a_finish_does_not_refill_the_bucket(self, store: Store) -> None:
        rule = in_time("x", 2, burst=1)
        put(store, *[a_job(limits=("x",)) for _ in range(2)])
        finish_all(store, claim_within(store, rule), FAILED)
        assert use_of(store, "x", rule)[:6] == ("x", 0, 0, at(5), None, None)
        assert claim_within(store, rule, now=at(5) - TICK) == []

    def test_lanes_that_share_a_bucket_share_its_burst(self, store: Store) -> None:
        rule = in_time("x", 2, burst=3)
        put(store, *[a_job(tenant=f"t{n}", limits=("x",)) for n in range(5)])
        assert len(claim_within(store, rule)) == 3
        assert use_of(store, "x", rule).full_until_at == at(15)


class RedateLaws:
    """A late start is redated: it counts when the handler starts, not when the job was claimed."""

    def test_a_redated_start_counts_from_its_new_time(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        claims = claim_within(store, TWO_IN_TEN)
        assert store.redate(claims[:1], by_name(TWO_IN_TEN), now=at(8)) == REDATED
        assert use_of(store, "x", TWO_IN_TEN, now=at(8))[:5] == ("x", 2, 2, None, T0)
        assert len(claim_within(store, TWO_IN_TEN, now=at(10))) == 1
        assert claim_within(store, TWO_IN_TEN, now=at(18) - TICK) == []
        assert len(claim_within(store, TWO_IN_TEN, now=at(18))) == 1

    def test_a_job_can_be_redated_repeatedly(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        claims = claim_within(store, TWO_IN_TEN)
        for second in (1, 2, 7):
            assert store.redate(claims, by_name(TWO_IN_TEN), now=at(second)) == REDATED
        assert use_of(store, "x", TWO_IN_TEN, now=at(7))[:5] == ("x", 2, 2, None, at(7))
        assert claim_within(store, TWO_IN_TEN, now=at(17) - TICK) == []
        assert len(claim_within(store, TWO_IN_TEN, now=at(17))) == 2

    def test_a_late_start_is_refused_in_a_full_window(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        late = claim_within(store, TWO_IN_TEN)
        assert len(claim_within(store, TWO_IN_TEN, now=at(10))) == 2
        refused = store.redate(late, by_name(TWO_IN_TEN), now=at(11))
        assert refused == Redated(frozenset(), frozenset(claim.id for claim in late))
        assert use_of(store, "x", TWO_IN_TEN, now=at(11)).begun == 2
        assert used(store, "x") == [4]

    def test_a_refused_start_is_no_longer_counted(self, store: Store) -> None:
        put(store, *[a_job(limits=("x", "y")) for _ in range(4)])
        rules = (TWO_IN_TEN, in_time("y", 1))
        (late,) = claim_within(store, *rules)
        assert len(claim_within(store, *rules, now=at(10))) == 1
        assert store.redate([late], by_name(*rules), now=at(11)).refused == {late.id}
        assert use_of(store, "x", *rules, now=at(11)).begun == 1

    def test_late_starts_are_limited_by_the_rate(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        late = claim_within(store, TWO_IN_TEN)
        assert len(claim_within(store, TWO_IN_TEN, now=at(10), limit=1)) == 1
        assert store.redate(late, by_name(TWO_IN_TEN), now=at(11)) == Redated(
            frozenset(), frozenset({late[1].id})
        )
        assert use_of(store, "x", TWO_IN_TEN, now=at(11)).begun == 2

    def test_a_job_that_is_no_longer_held_is_lost(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(2)])
        claims = claim_within(store, TWO_IN_TEN)
        finish_all(store, claims[:1])
        stale = claims[1]._replace(token=claims[1].token + 1)
        lost = store.redate([claims[0], stale], by_name(TWO_IN_TEN), now=at(1)).lost
        assert lost == {claims[0].id, stale.id}
        assert use_of(store, "x", TWO_IN_TEN, now=at(1))[2] == 2

    def test_a_redated_job_shows_its_new_times(self, store: Store) -> None:
        (id,) = put(store, a_job(limits=("x",)))
        store.redate(claim_within(store, TWO_IN_TEN), by_name(TWO_IN_TEN), now=at(3))
        (job,) = store.get([id], tenant="default")
        assert (job.claimed_at, job.started_at, job.state) == (at(3), at(3), S.RUNNING)

    def test_a_late_start_takes_another_share_of_a_bucket(self, store: Store) -> None:
        rule = in_time("x", 2, burst=2)
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        late = claim_within(store, rule, limit=1)
        assert store.redate(late, by_name(rule), now=at(1)) == REDATED
        assert store.redate(late, by_name(rule), now=at(2)) == Redated(frozenset(), frozenset({late[0].id}))
        assert claim_within(store, rule, now=at(5) - TICK) == []
        assert len(claim_within(store, rule, now=at(5))) == 1

    def test_other_limits_do_not_affect_a_late_start(self, store: Store) -> None:
        put(store, *[a_job(limits=("x", "one")) for _ in range(2)])
        rules = (TWO_IN_TEN, at_once("one", 1))
        claims = claim_within(store, *rules)
        assert store.redate(claims, by_name(*rules), now=at(1)) == REDATED
        assert used(store, "x", "one") == [1, 1]

    def test_concurrent_late_starts_exceed_no_rate(self, store: Store) -> None:
        rule = in_time("x", 2, HOUR)
        store.enqueue([a_job(limits=("x",)) for _ in range(8)])
        claims = store.claim(wants(store)._replace(rules=by_name(in_time("x", 8, HOUR))))
        refused = together([lambda c=c: store.redate([c], by_name(rule)).refused for c in claims])  # type: ignore[misc]
        assert sum(map(len, refused)) == 6


class ClockSetBackLaws:
    """After the store's clock is set back, starts in its future count as starts of now, for at most one window.

    They may have happened a moment ago, so a store that ignored them would allow more starts in a window than the rate.
    """

    def test_a_future_start_counts_from_the_next_claim(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        assert len(claim_within(store, TWO_IN_TEN, now=T0 + HOUR)) == 2
        assert claim_within(store, TWO_IN_TEN, now=at(1)) == []
        assert claim_within(store, TWO_IN_TEN, now=at(11) - TICK) == []
        assert len(claim_within(store, TWO_IN_TEN, now=at(11))) == 2

    def test_future_starts_are_counted_separately(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        claim_within(store, TWO_IN_TEN, now=T0 + HOUR)
        use = use_of(store, "x", TWO_IN_TEN, now=at(1))
        assert (use.begun, use.ahead) == (0, 2)

    def test_an_overfilled_bucket_counts_as_full(self, store: Store) -> None:
        rule = in_time("x", 2, burst=2)
        put(store, *[a_job(limits=("x",)) for _ in range(4)])
        assert len(claim_within(store, rule, now=T0 + HOUR)) == 2
        assert claim_within(store, rule, now=at(1)) == []
        assert claim_within(store, rule, now=at(6) - TICK) == []
        assert len(claim_within(store, rule, now=at(6))) == 1


class BreakerLaws:
    """Jobs that depend on a failing service are held back, and few of them probe it."""

    def test_an_unset_breaker_limits_nothing(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        assert len(claim_within(store, GUARDED)) == 5

    def test_an_open_breaker_blocks_until_its_pause_ends(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("x",)) for _ in range(5)])
        plain = put_one(store)
        assert store.change_breaker("x", None, OPEN, now=T0)
        assert ids_of(claim_within(store, GUARDED)) == [plain]
        assert claim_within(store, GUARDED, now=at(10) - TICK) == []
        assert ids_of(claim_within(store, GUARDED, now=at(10))) == ids[:2]

    def test_a_breaker_allows_as_many_probes_as_configured(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        store.change_breaker("x", None, OPEN, now=T0)
        assert len(claim_within(store, GUARDED, now=at(10))) == 2
        assert claim_within(store, GUARDED, now=at(11)) == []

    def test_a_finished_probe_makes_no_room_before_its_result_is_known(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        store.change_breaker("x", None, OPEN, now=T0)
        probes = claim_within(store, GUARDED, now=at(10))
        finish_all(store, probes, now=at(11))
        assert claim_within(store, GUARDED, now=at(25) - TICK) == []
        assert len(claim_within(store, GUARDED, now=at(25))) == 1  # two probes within a rest period of 30 s

    def test_a_breaker_that_closes_forgets_its_probes(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        store.change_breaker("x", None, OPEN, now=T0)
        finish_all(store, claim_within(store, GUARDED, now=at(10)), now=at(11))
        assert store.change_breaker("x", OPEN, written(BreakerState()), now=at(11))
        assert len(claim_within(store, GUARDED, now=at(11))) == 3

    def test_a_clock_that_is_set_back_delays_probes_by_one_rest_period(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        store.change_breaker("x", None, written(BreakerState(BreakerPhase.HALF_OPEN, T0)), now=T0)
        finish_all(store, claim_within(store, GUARDED, now=at(3600)), now=at(3600))
        assert claim_within(store, GUARDED, now=T0) == []
        assert len(claim_within(store, GUARDED, now=at(15))) == 1

    def test_a_closed_breaker_limits_nothing(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        store.change_breaker("x", None, OPEN, now=T0)
        assert store.change_breaker("x", OPEN, written(BreakerState()), now=at(1))
        assert len(claim_within(store, GUARDED, now=at(1))) == 5

    def test_a_half_open_breaker_allows_its_probes(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        store.change_breaker("x", None, written(BreakerState(BreakerPhase.HALF_OPEN, T0)), now=T0)
        assert len(claim_within(store, GUARDED)) == 2

    def test_a_breaker_changes_only_from_the_expected_state(self, store: Store) -> None:
        assert not store.change_breaker("x", "other", OPEN, now=T0)
        assert store.change_breaker("x", None, OPEN, now=T0)
        assert not store.change_breaker("x", None, "2", now=T0)
        assert use_of(store, "x").breaker == OPEN
        assert store.change_breaker("x", OPEN, "3", now=T0)
        assert use_of(store, "x").breaker == "3"
        assert use_of(store, "y").breaker is None

    def test_one_of_many_concurrent_breaker_changes_wins(self, store: Store) -> None:
        store.change_breaker("x", None, "first", now=T0)
        won = together(
            [lambda n=n: store.change_breaker("x", "first", f"{n}", now=T0) for n in range(4)]  # type: ignore[misc]
        )
        assert sorted(won) == [False, False, False, True]
        assert use_of(store, "x").breaker == str(won.index(True))

    def test_a_breaker_state_survives_claims_and_finishes(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(2)])
        claims = claim_all(store)
        assert store.change_breaker("x", None, "state", now=T0)
        assert used(store, "x") == [2]
        finish_all(store, claims)
        assert use_of(store, "x")[:6] == ("x", 0, 0, None, None, "state")

    @every_odd_text
    def test_any_text_is_a_valid_breaker_state(self, store: Store, text: str) -> None:
        assert store.change_breaker(text, None, text, now=T0)
        assert use_of(store, text).breaker == text
        assert store.change_breaker(text, text, "after", now=T0)


class OwnTimeLimitLaws:
    """Without a given ``now``, a rate follows the store's own clock."""

    @pytest.mark.parametrize("rule", [in_time("x", 2, HOUR), in_time("x", 2, HOUR, burst=2)], ids=range(2))
    def test_a_rate_follows_the_stores_clock(self, store: Store, rule: Rule) -> None:
        rules: Rules = by_name(rule)
        store.enqueue([a_job(limits=("x",)) for _ in range(5)])
        claims = store.claim(wants(store)._replace(rules=rules))
        assert len(claims) == 2
        assert store.claim(wants(store)._replace(rules=rules)) == []
        (use,) = store.uses(rules, ["x"])
        assert (use.used, use.begun or 2) == (2, 2)
        assert [use.name for use in store.uses(rules)] == ["x"]
