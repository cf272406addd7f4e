"""Laws of counting: a claim takes what its limits have room for, in the order of its lanes."""

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
from tidemill.testing.conformance.limited import at_once, by_name, claim_within, use_of, used
from tidemill.testing.conformance.payloads import every_odd_text

S = JobState
ONE, THREE = at_once("one", 1), at_once("three", 3)


class LimitLaws:
    """How much a claim may take (law 18)."""

    @pytest.mark.parametrize("most", [1, 3, 7])
    def test_a_claim_takes_as_many_as_the_limit_allows(self, store: Store, most: int) -> None:
        ids = put(store, *[a_job(limits=("x",)) for _ in range(7)])
        assert ids_of(claim_within(store, at_once("x", most))) == ids[:most]
        assert claim_within(store, at_once("x", most)) == []
        assert used(store, "x") == [most]

    def test_what_is_held_leaves_less_room(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("three",)) for _ in range(5)])
        first = claim_within(store, THREE, limit=1)
        assert ids_of(claim_within(store, THREE)) == ids[1:3]
        finish_all(store, first)
        assert ids_of(claim_within(store, THREE)) == ids[3:4]
        assert used(store, "three") == [3]

    @pytest.mark.parametrize("rules", [(), (at_once("x", 0),), (at_once("y", 1),)], ids=range(3))
    def test_what_no_rule_limits_is_counted_all_the_same(self, store: Store, rules: tuple[Rule, ...]) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        assert len(claim_within(store, *rules)) == 5
        assert used(store, "x") == [5]

    def test_of_two_limits_the_tighter_one_decides_and_both_are_counted(self, store: Store) -> None:
        put(store, *[a_job(limits=("three", "one")) for _ in range(3)])
        assert len(claim_within(store, ONE, THREE)) == 1
        assert used(store, "one", "three") == [1, 1]

    def test_a_rule_counts_each_of_its_keys_by_itself(self, store: Store) -> None:
        put(store, *[a_job(limits=(f"three/{key}",)) for key in "aaaab"])
        assert Counter(claim.limits for claim in claim_within(store, THREE)) == {
            ("three/a",): 3,
            ("three/b",): 1,
        }
        assert used(store, "three/a", "three/b", "three") == [3, 1, 0]

    def test_a_rule_for_just_one_key_goes_before_that_for_all(self, store: Store) -> None:
        put(store, *[a_job(limits=(f"three/{key}",)) for key in "aaaabbbb"])
        claims = claim_within(store, THREE, at_once("three/a", 2))
        assert Counter(claim.limits for claim in claims) == {("three/a",): 2, ("three/b",): 3}

    def test_a_lowered_limit_takes_nothing_away_and_gives_nothing_more(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        claims = claim_within(store, at_once("x", 3))
        lowered = at_once("x", 2)
        assert claim_within(store, lowered) == []
        finish_all(store, claims[:1])
        assert claim_within(store, lowered) == []
        finish_all(store, claims[1:2])
        assert len(claim_within(store, lowered)) == 1

    def test_fifty_keys_of_three_share_one_limit_of_sixty(self, store: Store) -> None:
        everything, each = at_once("all", 60), at_once("key", 3)
        put(store, *[a_job(limits=(f"key/{n % 50}", "all")) for n in range(250)])
        left = Counter({f"key/{n}": 5 for n in range(50)})
        while left:
            claims = claim_within(store, everything, each)
            held = Counter((claim.limits or ("",))[0] for claim in claims)
            assert len(claims) == min(60, sum(min(3, number) for number in left.values()))
            assert max(held.values()) <= 3
            assert used(store, "all", *held) == [len(claims), *held.values()]
            assert claim_within(store, everything, each) == []
            finish_all(store, claims)
            left -= held
        assert store.uses({}, now=T0) == []

    def test_claimed_jobs_count_as_running_ones_do_and_are_counted_once(self, store: Store) -> None:
        put(store, a_job(limits=("one",)), a_job(limits=("one",)))
        claims = claim_within(store, ONE, start=False)
        assert [claim.state for claim in claims] == [S.CLAIMED]
        store.start(claims, now=T0)
        store.start(claims, now=T0)
        assert claim_within(store, ONE) == []
        assert used(store, "one") == [1]

    def test_a_claim_that_gets_nothing_counts_nothing(self, store: Store) -> None:
        put_one(store, "a", limits=("one",))
        assert claim_within(store, ONE, tasks=["b"]) == []
        assert claim_within(store, ONE, limit=0) == []
        assert used(store, "one") == [0]
        assert len(claim_within(store, ONE)) == 1

    def test_a_name_that_is_given_twice_counts_once(self, store: Store) -> None:
        put(store, *[a_job(limits=("three", "x", "three")) for _ in range(4)])
        claims = claim_within(store, THREE)
        assert [claim.limits for claim in claims] == [("three", "x", "three")] * 3
        assert used(store, "three", "x") == [3, 3]
        finish_all(store, claims[:1])
        assert used(store, "three", "x") == [2, 2]

    @every_odd_text
    def test_any_text_is_a_name(self, store: Store, text: str) -> None:
        put(store, *[a_job(limits=(text, f"{text}/{text}", "another")) for _ in range(3)])
        (claim,) = claim_within(store, at_once(text, 1))
        assert claim.limits == get_one(store, claim.id).limits == (text, f"{text}/{text}", "another")
        assert used(store, text, f"{text}/{text}") == [1, 1]
        assert {use.name for use in store.uses({}, now=T0)} == {text, f"{text}/{text}", "another"}
        finish_all(store, [claim])
        assert used(store, text, f"{text}/{text}") == [0, 0]


class RoomLaws:
    """Which lanes get the room there is: those that come first, and what they cannot use goes to the next."""

    def test_room_that_short_lanes_cannot_fill_goes_to_others(self, store: Store) -> None:
        put(store, *[a_job(tenant=f"tenant-{n:02}", limits=("x",)) for n in range(12)])
        assert len(claim_within(store, at_once("x", 10))) == 10
        assert used(store, "x") == [10]

    def test_room_that_lanes_of_other_tasks_do_not_take_goes_to_others(self, store: Store) -> None:
        put(store, *[a_job("other", tenant=f"a{n}", limits=("one",)) for n in range(6)])
        id = put_one(store, "mine", tenant="b", limits=("one",))
        assert ids_of(claim_within(store, ONE, tasks=["mine"])) == [id]

    def test_the_room_goes_to_the_lane_that_comes_first(self, store: Store) -> None:
        low, high = put(store, a_job(limits=("one",)), a_job(priority=5, limits=("one",)))
        assert ids_of(claim_within(store, ONE)) == [high]
        request = wants(store)._replace(rules=by_name(at_once("one", 2)))
        assert ids_of(store.claim(request, now=T0)) == [low]

    def test_a_lane_that_shares_a_limit_is_not_passed_over_for_one_after_it(self, store: Store) -> None:
        put_one(store, "other", priority=9, limits=("one",))
        mine = put_one(store, "mine", priority=5, limits=("one",))
        put(store, *[a_job("mine") for _ in range(5)])
        assert ids_of(claim_within(store, ONE, tasks=["mine"], limit=1)) == [mine]

    def test_claims_come_in_the_order_of_the_lanes(self, store: Store) -> None:
        ids = put(
            store,
            a_job(priority=9, limits=("three",)),
            a_job(priority=8),
            a_job(priority=7, limits=("three", "one")),
            a_job(priority=6, limits=("three",)),
            a_job(priority=5),
        )
        assert ids_of(claim_within(store, ONE, THREE)) == ids

    def test_a_lane_yields_no_more_than_its_quota_though_there_is_room(self, store: Store) -> None:
        put_one(store, "other", queue="a", limits=("three",))
        put(store, *[a_job("mine", queue="b", limits=("three", "x")) for _ in range(5)])
        put(store, *[a_job("mine", queue="c") for _ in range(5)])
        lanes = [lane._replace(quota=1) for lane in ordered_lanes(store)]
        request = wants(store, tasks=["mine"])._replace(lanes=lanes, rules=by_name(THREE))
        assert [claim.queue for claim in store.claim(request, now=T0)] == ["b", "c"]

    def test_a_claim_gives_no_more_than_its_limit_though_there_is_room(self, store: Store) -> None:
        put(store, *[a_job(queue=f"{n % 4}", limits=("x", f"key/{n % 4}")) for n in range(20)])
        claims = claim_within(store, at_once("x", 15), limit=7)
        assert [claim.queue for claim in claims] == ["0"] * 5 + ["1"] * 2
        assert used(store, "x", "key/0", "key/1", "key/2") == [7, 5, 2, 0]

    def test_jobs_without_limits_are_claimed_beside_a_limit_that_is_full(self, store: Store) -> None:
        put(store, *[a_job(limits=("one",)) for _ in range(3)])
        plain = put(store, *[a_job() for _ in range(3)])
        claim_within(store, ONE, limit=4)
        later = put(store, a_job(), a_job(priority=-1))
        assert ids_of(claim_within(store, ONE)) == later
        assert [get_one(store, id).state for id in plain] == [S.RUNNING] * 3
        assert used(store, "one") == [1]

    def test_a_full_limit_keeps_nobody_back_that_has_another(self, store: Store) -> None:
        put(store, *[a_job(limits=("one",)) for _ in range(3)])
        other = put_one(store, limits=("other",))
        assert ids_of(claim_within(store, ONE))[1:] == [other]
        assert used(store, "one", "other") == [1, 1]


class MoreLimitLaws:
    """A claim may count a lane against more limits than its jobs know of; those that are held then know them."""

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

    def test_jobs_without_limits_can_be_counted_too(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(3)])
        lanes = [lane._replace(limits=("one",)) for lane in store.lanes()]
        request = wants(store)._replace(lanes=lanes, rules=by_name(ONE))
        (claim,) = store.claim(request, now=T0)
        assert (claim.id, claim.limits) == (ids[0], ("one",))
        assert store.claim(request, now=T0) == []
        finish_all(store, [claim])
        assert used(store, "one") == [0]
        assert len(store.claim(request, now=T0)) == 1

    def test_a_job_that_goes_back_keeps_them(self, store: Store) -> None:
        id = put_one(store)
        lanes = [lane._replace(limits=("one",)) for lane in store.lanes()]
        (claim,) = store.claim(wants(store)._replace(lanes=lanes), now=T0)
        finish_all(store, [claim], AGAIN)
        assert store.lanes() == []
        assert [(lane.gate, lane.limits) for lane in store.gates()] == [(gate_of(("one",)), ("one",))]
        assert claim_one(store, id).limits == ("one",)

    def test_lanes_beside_each_other_are_each_counted_against_their_own(self, store: Store) -> None:
        put(store, a_job(), a_job(limits=("x",)), a_job(limits=("y",)))
        more = {"": ("m",), gate_of(("x",)): ("x", "m"), gate_of(("y",)): ("y",)}
        lanes = [lane._replace(limits=more[lane.gate]) for lane in ordered_lanes(store)]
        claims = store.claim(wants(store)._replace(lanes=lanes), now=T0)
        assert [claim.limits for claim in claims] == [("m",), ("x", "m"), ("y",)]
        assert [get_one(store, claim.id).limits for claim in claims] == [("m",), ("x", "m"), ("y",)]
        assert used(store, "m", "x", "y") == [2, 1, 1]


class UseLaws:
    """What is used can be asked for."""

    def test_names_come_in_their_order_with_those_of_which_nothing_is_used(self, store: Store) -> None:
        put(store, *[a_job(limits=("b",)) for _ in range(2)])
        claim_all(store)
        assert [(use.name, use.used) for use in store.uses({}, ["c", "b", "a"], now=T0)] == [
            ("c", 0),
            ("b", 2),
            ("a", 0),
        ]
        assert store.uses({}, [], now=T0) == []

    def test_without_names_the_most_used_come_first(self, store: Store) -> None:
        put(store, *[a_job(limits=(name,)) for name in "baacccdd"])
        claims = claim_all(store)
        finish_all(store, [claim for claim in claims if claim.limits == ("b",)])
        found = [(use.name, use.used) for use in store.uses({}, now=T0)]
        assert found == [("c", 3), ("a", 2), ("d", 2)]
        assert [use.name for use in store.uses({}, limit=2, now=T0)] == ["c", "a"]

    def test_nothing_is_known_of_a_name_nobody_used(self, store: Store) -> None:
        assert use_of(store, "x", ONE)[:6] == ("x", 0, 0, None, None, None)
