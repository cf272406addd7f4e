"""Laws of steps whose claims reuse the limit slots that their finishes release."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish, Transition
from tidemill.domain.limits import Rule
from tidemill.stores.base import StepResult, Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    FAILED,
    LATER,
    OTHER,
    T0,
    WORKER,
    a_job,
    asks,
    at,
    claim_all,
    put,
)
from tidemill.testing.conformance.limited_claims import at_once, used


def hand_on(
    store: Store, ends: Sequence[Claim], *rules: Rule, way: Transition = COMPLETED, limit: int = 100
) -> StepResult:
    """Finish these jobs, and let claims reuse their limit slots."""
    request = asks(
        store, WORKER, store.gates(), limit, rules={rule.name: rule for rule in rules}, handoff=True
    )
    return store.step([Finish(claim, way) for claim in ends], request, now=at(1))


def hold(store: Store, number: int, *rules: Rule) -> list[Claim]:
    request = asks(store, WORKER, store.gates(), number, rules={rule.name: rule for rule in rules})
    return store.claim(request, now=T0)


class HeirLaws:
    """Law 19: a step with ``handoff`` claims no more of any name than its finishes release."""

    def test_a_handoff_claims_as_many_as_were_finished(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("x",)) for _ in range(5)])
        first = hold(store, 9, at_once("x", 2))
        step = hand_on(store, first, at_once("x", 2))
        assert [claim.id for claim in step.claims] == ids[2:4]
        assert (step.lost, used(store, "x")) == (frozenset(), [2])
        assert {claim.limits for claim in step.claims} == {("x",)}

    def test_a_handoff_claims_no_more_despite_free_slots(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        held = hold(store, 3, at_once("x", 8))
        assert len(hand_on(store, held[:1], at_once("x", 8)).claims) == 1
        assert used(store, "x") == [3]
        assert len(hand_on(store, held[1:], at_once("x", 8), limit=9).claims) == 2
        assert used(store, "x") == [3]

    def test_unused_handoff_slots_are_released(self, store: Store) -> None:
        put(store, *[a_job(limits=("x", "y")) for _ in range(4)])
        held = hold(store, 3, at_once("x", 3))
        assert len(hand_on(store, held, at_once("x", 3)).claims) == 1
        assert used(store, "x", "y") == [1, 1]

    def test_a_handoff_applies_to_each_key(self, store: Store) -> None:
        put(store, *[a_job(limits=("all", f"key/{n % 3}")) for n in range(9)])
        rules = (at_once("all", 3), at_once("key", 1))
        held = hold(store, 9, *rules)
        assert len(held) == 3
        step = hand_on(store, held[:2], *rules)
        assert [claim.limits for claim in step.claims] == [held[0].limits, held[1].limits]
        assert used(store, "all", "key/0", "key/1", "key/2") == [3, 1, 1, 1]

    def test_slots_of_a_lowered_limit_are_not_handed_off(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(9)])
        held = hold(store, 4, at_once("x", 4))
        assert hand_on(store, held[:2], at_once("x", 2)).claims == []
        assert used(store, "x") == [2]
        assert len(hand_on(store, held[2:3], at_once("x", 2)).claims) == 1
        assert used(store, "x") == [2]

    def test_a_lost_finish_hands_off_nothing(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(6)])
        mine, other = hold(store, 2, at_once("x", 2))
        assert store.finish([Finish(other, FAILED)], now=T0) == frozenset()
        (taken,) = hold(store, 1, at_once("x", 2))
        step = hand_on(store, [mine, other], at_once("x", 2))
        assert step.lost == {other.id}
        assert len(step.claims) <= 1
        assert used(store, "x") == [1 + len(step.claims)]
        assert store.finish([Finish(taken, COMPLETED)], now=at(2)) == frozenset()

    def test_a_finish_by_another_worker_hands_off_nothing(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        (mine,) = hold(store, 1, at_once("x", 1))
        step = hand_on(store, [mine._replace(worker=OTHER)], at_once("x", 1))
        assert (step.lost, step.claims, used(store, "x")) == (frozenset({mine.id}), [], [1])
        as_other = asks(store, OTHER, store.gates(), 9, rules={"x": at_once("x", 1)}, handoff=True)
        step = store.step([Finish(mine._replace(worker=OTHER), COMPLETED)], as_other, now=at(1))
        assert (step.lost, step.claims, used(store, "x")) == (frozenset({mine.id}), [], [1])
        assert store.finish([Finish(mine._replace(worker=OTHER), COMPLETED)], now=at(2)) == {mine.id}
        assert used(store, "x") == [1]
        assert len(hand_on(store, [mine], at_once("x", 1)).claims) == 1

    @pytest.mark.parametrize("way", [AGAIN, LATER, FAILED], ids=["again", "later", "failed"])
    def test_a_retried_job_hands_off_its_slot(self, store: Store, way: Transition) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        held = hold(store, 1, at_once("x", 1))
        assert len(hand_on(store, held, at_once("x", 1), way=way).claims) == 1
        assert used(store, "x") == [1]

    def test_a_claim_without_a_finish_hands_off_nothing(self, store: Store) -> None:
        put(store, a_job(limits=("x",)))
        request = asks(store, WORKER, store.gates(), 9, handoff=True)
        assert store.claim(request, now=T0) == []
        assert len(claim_all(store)) == 1
