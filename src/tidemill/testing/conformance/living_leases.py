"""Laws of claims by workers without a valid lease."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, Transition
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.states import JobState
from tidemill.stores.base import StepResult, Store
from tidemill.testing.conformance.kit import (
    FAILED,
    HOUR,
    OTHER,
    SECOND,
    T0,
    WORKER,
    a_job,
    asks,
    at,
    claim_all,
    claim_one,
    get_one,
    put,
    put_one,
    register,
)

S = JobState


def _unknown(store: Store) -> None:
    """The worker has no row."""


def expired(store: Store) -> None:
    """The lease of the worker has expired."""
    register(store, WORKER, lease=SECOND, now=at(8))


def _gone(store: Store) -> None:
    register(store, WORKER, lease=HOUR)
    store.declare_gone([(WORKER, 0)], now=at(1))


def _stopped(store: Store) -> None:
    register(store, WORKER, lease=HOUR)
    store.retire([WORKER], now=at(20))


without_lease = pytest.mark.parametrize("how", [_unknown, expired, _gone, _stopped])


class LivingLeaseLaws:
    """A worker without a valid lease claims nothing, by any verb, but may write its ends."""

    LANE = Lane("default", "default", 0)

    @without_lease
    def test_a_worker_without_a_lease_claims_nothing(
        self, store: Store, how: Callable[[Store], None]
    ) -> None:
        how(store)
        id = put_one(store)
        assert store.claim(ClaimRequest(WORKER, [self.LANE], 10), now=at(9)) == []
        assert store.claim(ClaimRequest(WORKER, [self.LANE], 10, ["work"], start=False), now=at(9)) == []
        assert get_one(store, id).state is S.PENDING

    @without_lease
    def test_a_worker_without_a_lease_claims_no_limited_jobs(
        self, store: Store, how: Callable[[Store], None]
    ) -> None:
        how(store)
        rules = {
            "many": Rule("many", max=5),
            "fast": Rule("fast", LimitKind.RATE, max=5, per=HOUR),
        }
        put(store, a_job(limits=("many",)), a_job(limits=("fast",)))
        for lane in store.gates():
            assert store.claim(ClaimRequest(WORKER, [lane], 10, rules=rules), now=at(9)) == []
        assert store.uses(rules, now=at(9)) == []
        assert len(claim_all(store, worker=OTHER, now=at(9))) == 2

    @without_lease
    @pytest.mark.parametrize("transition", [COMPLETED, FAILED])
    def test_a_step_without_a_lease_finishes_but_does_not_claim(
        self, store: Store, how: Callable[[Store], None], transition: Transition
    ) -> None:
        how(store)
        held = claim_all(store, worker=OTHER, now=T0) or [
            claim_one(store, put_one(store), worker=OTHER, now=T0)
        ]
        waiting = put_one(store)
        step = store.step(
            [Finish(claim, transition) for claim in held],
            ClaimRequest(WORKER, [self.LANE], 10),
            now=at(9),
        )
        assert step == StepResult(frozenset(), [])
        assert get_one(store, held[0].id).state is transition.state
        assert get_one(store, waiting).state is S.PENDING

    @without_lease
    def test_a_handoff_without_a_lease_claims_nothing(
        self, store: Store, how: Callable[[Store], None]
    ) -> None:
        how(store)
        rules = {"one": Rule("one", max=1)}
        put(store, a_job(limits=("one",)), a_job(limits=("one",)))
        request = asks(store, OTHER, store.gates(), 1, rules=rules)
        held = store.claim(request, now=T0)
        handoff_request = ClaimRequest(WORKER, store.gates(), 1, rules=rules, handoff=True)
        step = store.step([Finish(claim, COMPLETED) for claim in held], handoff_request, now=at(9))
        assert step == StepResult(frozenset(), [])
        assert store.uses(rules, now=at(9)) == []
        assert len(store.claim(request._replace(lanes=store.gates()), now=at(9))) == 1
