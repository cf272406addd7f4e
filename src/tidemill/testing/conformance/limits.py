"""Laws of limits: a claim takes what its limits allow, in the order of its lanes."""

from __future__ import annotations

from collections import Counter

import pytest

from tidemill.domain.limits import Rule, gate_of
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    T0,
    a_job,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    ids_of,
    ordered_lanes,
    put,
    put_one,
    wants,
)
from tidemill.testing.conformance.limited_claims import at_once, by_name, claim_within, use_of, used
from tidemill.testing.conformance.payloads import every_odd_text

S = JobState
ONE, THREE = at_once("one", 1), at_once("three", 3)


class LimitLaws:
    """Law 18: how much a claim may take."""

    @pytest.mark.parametrize("most", [1, 3, 7])
    def test_a_claim_takes_as_many_as_the_limit_allows(self, store: Store, most: int) -> None:
        ids = put(store, *[a_job(limits=("x",)) for _ in range(7)])
        assert ids_of(claim_within(store, at_once("x", most))) == ids[:most]
        assert claim_within(store, at_once("x", most)) == []
        assert used(store, "x") == [most]

    def test_held_jobs_use_up_the_limit(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("three",)) for _ in range(5)])
        first = claim_within(store, THREE, limit=1)
        assert ids_of(claim_within(store, THREE)) == ids[1:3]
        finish_all(store, first)
        assert ids_of(claim_within(store, THREE)) == ids[3:4]
        assert used(store, "three") == [3]

    @pytest.mark.parametrize("rules", [(), (at_once("x", 0),), (at_once("y", 1),)], ids=range(3))
    def test_names_without_a_rule_are_counted(self, store: Store, rules: tuple[Rule, ...]) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        assert len(claim_within(store, *rules)) == 5
        assert used(store, "x") == [5]

    def test_the_tighter_of_two_limits_applies_and_both_count(self, store: Store) -> None:
        put(store, *[a_job(limits=("three", "one")) for _ in range(3)])
        assert len(claim_within(store, ONE, THREE)) == 1
        assert used(store, "one", "three") == [1, 1]

    def test_a_rule_counts_each_key_separately(self, store: Store) -> None:
        put(store, *[a_job(limits=(f"three/{key}",)) for key in "aaaab"])
        assert Counter(claim.limits for claim in claim_within(store, THREE)) == {
            ("three/a",): 3,
            ("three/b",): 1,
        }
        assert used(store, "three/a", "three/b", "three") == [3, 1, 0]

    def test_a_rule_of_one_key_overrides_the_general_rule(self, store: Store) -> None:
        put(store, *[a_job(limits=(f"three/{key}",)) for key in "aaaabbbb"])
        claims = claim_within(store, THREE, at_once("three/a", 2))
        assert Counter(claim.limits for claim in claims) == {("three/a",): 2, ("three/b",): 3}

    def test_a_lowered_limit_keeps_held_jobs_and_blocks_new_ones(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        claims = claim_within(store, at_once("x", 3))
        lowered = at_once("x", 2)
        assert claim_within(store, lowered) == []
        finish_all(store, claims[:1])
        assert claim_within(store, lowered) == []
        finish_all(store, claims[1:2])
        assert len(claim_within(store, lowered)) == 1

    def test_keyed_limits_share_an_overall_limit(self, store: Store) -> None:
        everything, per_key = at_once("all", 60), at_once("key", 3)
        put(store, *[a_job(limits=(f"key/{n % 50}", "all")) for n in range(250)])
        left = Counter({f"key/{n}": 5 for n in range(50)})
        while left:
            claims = claim_within(store, everything, per_key)
            held = Counter((claim.limits or ("",))[0] for claim in claims)
            assert len(claims) == min(60, sum(min(3, number) for number in left.values()))
            assert max(held.values()) <= 3
            assert used(store, "all", *held) == [len(claims), *held.values()]
            assert claim_within(store, everything, per_key) == []
            finish_all(store, claims)
            left -= held
        assert store.uses({}, now=T0) == []

    def test_claimed_jobs_count_once_like_running_ones(self, store: Store) -> None:
        put(store, a_job(limits=("one",)), a_job(limits=("one",)))
        claims = claim_within(store, ONE, start=False)
        assert [claim.state for claim in claims] == [S.CLAIMED]
        store.start(claims, now=T0)
        store.start(claims, now=T0)
        assert claim_within(store, ONE) == []
        assert used(store, "one") == [1]

    def test_an_empty_claim_counts_nothing(self, store: Store) -> None:
        put_one(store, "a", limits=("one",))
        assert claim_within(store, ONE, tasks=["b"]) == []
        assert claim_within(store, ONE, limit=0) == []
        assert used(store, "one") == [0]
        assert len(claim_within(store, ONE)) == 1

    def test_a_repeated_limit_name_counts_once(self, store: Store) -> None:
        put(store, *[a_job(limits=("three", "x", "three")) for _ in range(4)])
        claims = claim_within(store, THREE)
        assert [claim.limits for claim in claims] == [("three", "x", "three")] * 3
        assert used(store, "three", "x") == [3, 3]
        finish_all(store, claims[:1])
        assert used(store, "three", "x") == [2, 2]

    @every_odd_text
    def test_any_text_can_be_counted_as_a_limit(self, store: Store, text: str) -> None:
        put(store, *[a_job(limits=(text, f"{text}/{text}", "another")) for _ in range(3)])
        (claim,) = claim_within(store, at_once(text, 1))
        assert claim.limits == get_one(store, claim.id).limits == (text, f"{text}/{text}", "another")
        assert used(store, text, f"{text}/{text}") == [1, 1]
        assert {use.name for use in store.uses({}, now=T0)} == {text, f"{text}/{text}", "another"}
        finish_all(store, [claim])
        assert used(store, text, f"{text}/{text}") == [0, 0]


class RoomLaws:
    """Free slots go to the first lanes; what they cannot use goes to the next."""

    def test_slots_that_short_lanes_cannot_fill_go_to_others(self, store: Store) -> None:
        put(store, *[a_job(tenant=f"tenant-{n:02}", limits=("x",)) for n in range(12)])
        assert len(claim_within(store, at_once("x", 10))) == 10
        assert used(store, "x") == [10]

    def test_slots_go_to_lanes_of_requested_tasks(self, store: Store) -> None:
        put(store, *[a_job("other", tenant=f"a{n}", limits=("one",)) for n in range(6)])
        id = put_one(store, "mine", tenant="b", limits=("one",))
        assert ids_of(claim_within(store, ONE, tasks=["mine"])) == [id]

    def test_free_slots_go_to_the_first_lane(self, store: Store) -> None:
        low, high = put(store, a_job(limits=("one",)), a_job(priority=5, limits=("one",)))
        assert ids_of(claim_within(store, ONE)) == [high]
        request = wants(store)._replace(rules=by_name(at_once("one", 2)))
        assert ids_of(store.claim(request, now=T0)) == [low]

    def test_a_limited_lane_is_not_skipped_for_a_later_one(self, store: Store) -> None:
        put_one(store, "other", priority=9, limits=("one",))
        mine = put_one(store, "mine", priority=5, limits=("one",))
        put(store, *[a_job("mine") for _ in range(5)])
        assert ids_of(claim_within(store, ONE, tasks=["mine"], limit=1)) == [mine]

    def test_limited_claims_come_in_lane_order(self, store: Store) -> None:
        ids = put(
            store,
            a_job(priority=9, limits=("three",)),
            a_job(priority=8),
            a_job(priority=7, limits=("three", "one")),
            a_job(priority=6, limits=("three",)),
            a_job(priority=5),
        )
        assert ids_of(claim_within(store, ONE, THREE)) == ids

    def test_a_quota_applies_despite_free_slots(self, store: Store) -> None:
        put_one(store, "other", queue="a", limits=("three",))
        put(store, *[a_job("mine", queue="b", limits=("three", "x")) for _ in range(5)])
        put(store, *[a_job("mine", queue="c") for _ in range(5)])
        lanes = [lane._replace(quota=1) for lane in ordered_lanes(store)]
        request = wants(store, tasks=["mine"])._replace(lanes=lanes, rules=by_name(THREE))
        assert [claim.queue for claim in store.claim(request, now=T0)] == ["b", "c"]

    def test_the_request_limit_applies_despite_free_slots(self, store: Store) -> None:
        put(store, *[a_job(queue=f"{n % 4}", limits=("x", f"key/{n % 4}")) for n in range(20)])
        claims = claim_within(store, at_once("x", 15), limit=7)
        assert [claim.queue for claim in claims] == ["0"] * 5 + ["1"] * 2
        assert used(store, "x", "key/0", "key/1", "key/2") == [7, 5, 2, 0]

    def test_unlimited_jobs_are_claimed_despite_a_full_limit(self, store: Store) -> None:
        put(store, *[a_job(limits=("one",)) for _ in range(3)])
        plain = put(store, *[a_job() for _ in range(3)])
        claim_within(store, ONE, limit=4)
        later = put(store, a_job(), a_job(priority=-1))
        assert ids_of(claim_within(store, ONE)) == later
        assert [get_one(store, id).state for id in plain] == [S.RUNNING] * 3
        assert used(store, "one") == [1]

    def test_a_full_limit_does_not_block_other_limits(self, store: Store) -> None:
        put(store, *[a_job(limits=("one",)) for _ in range(3)])
        other = put_one(store, limits=("other",))
        assert ids_of(claim_within(store, ONE))[1:] == [other]
        assert used(store, "one", "other") == [1, 1]


class MoreLimitLaws:
    """A claim may count a lane against more limits than its jobs name; held jobs then name them."""

    def test_more_limits_are_counted_and_written_to_the_held_job(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("x",)) for _ in range(3)])
        lanes = [lane._replace(limits=(*lane.limits, "one")) for lane in store.gates()]
        claims = store.claim(wants(store)._replace(lanes=lanes, rules=by_name(ONE)), now=T0)
        assert [(claim.id, claim.limits) for claim in claims] == [(ids[0], ("x", "one"))]
        assert get_one(store, ids[0]).limits == ("x", "one")
        assert get_one(store, ids[1]).limits == ("x",)
        assert [claim.limits for claim in store.held(claims[0].worker or ids[0])] == [("x", "one")]
        assert used(store, "x", "one") == [1, 1]
        finish_all(store, claims)
        assert used(store, "x", "one") == [0, 0]

    def test_jobs_without_limits_can_be_given_a_limit(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(3)])
        lanes = [lane._replace(limits=("one",)) for lane in store.lanes()]
        request = wants(store)._replace(lanes=lanes, rules=by_name(ONE))
        (claim,) = store.claim(request, now=T0)
        assert (claim.id, claim.limits) == (ids[0], ("one",))
        assert store.claim(request, now=T0) == []
        finish_all(store, [claim])
        assert used(store, "one") == [0]
        assert len(store.claim(request, now=T0)) == 1

    def test_a_job_that_goes_back_keeps_its_added_limits(self, store: Store) -> None:
        id = put_one(store)
        lanes = [lane._replace(limits=("one",)) for lane in store.lanes()]
        (claim,) = store.claim(wants(store)._replace(lanes=lanes), now=T0)
        finish_all(store, [claim], AGAIN)
        assert store.lanes() == []
        assert [(lane.gate, lane.limits) for lane in store.gates()] == [(gate_of(("one",)), ("one",))]
        assert claim_one(store, id).limits == ("one",)

    def test_each_lane_is_counted_against_its_own_limits(self, store: Store) -> None:
        put(store, a_job(), a_job(limits=("x",)), a_job(limits=("y",)))
        more = {"": ("m",), gate_of(("x",)): ("x", "m"), gate_of(("y",)): ("y",)}
        lanes = [lane._replace(limits=more[lane.gate]) for lane in ordered_lanes(store)]
        claims = store.claim(wants(store)._replace(lanes=lanes), now=T0)
        assert [claim.limits for claim in claims] == [("m",), ("x", "m"), ("y",)]
        assert [get_one(store, claim.id).limits for claim in claims] == [("m",), ("x", "m"), ("y",)]
        assert used(store, "m", "x", "y") == [2, 1, 1]


class UseLaws:
    """The use of limits can be queried."""

    def test_uses_are_returned_in_the_requested_order(self, store: Store) -> None:
        put(store, *[a_job(limits=("b",)) for _ in range(2)])
        claim_all(store)
        assert [(use.name, use.used) for use in store.uses({}, ["c", "b", "a"], now=T0)] == [
            ("c", 0),
            ("b", 2),
            ("a", 0),
        ]
        assert store.uses({}, [], now=T0) == []

    def test_without_names_the_most_used_limits_come_first(self, store: Store) -> None:
        put(store, *[a_job(limits=(name,)) for name in "baacccdd"])
        claims = claim_all(store)
        finish_all(store, [claim for claim in claims if claim.limits == ("b",)])
        uses = [(use.name, use.used) for use in store.uses({}, now=T0)]
        assert uses == [("c", 3), ("a", 2), ("d", 2)]
        assert [use.name for use in store.uses({}, limit=2, now=T0)] == ["c", "a"]

    def test_an_unused_name_has_a_zero_use(self, store: Store) -> None:
        assert use_of(store, "x", ONE)[:6] == ("x", 0, 0, None, None, None)
