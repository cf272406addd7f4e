"""Laws of concurrent threads."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from functools import partial
from uuid import UUID

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, Finish, Move, Transition
from tidemill.domain.lanes import Lane
from tidemill.domain.states import ExecutionState, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    FAILED,
    T0,
    a_job,
    asks,
    at,
    claim_one,
    executions_of,
    get_one,
    ids_of,
    patiently,
    put,
    put_one,
    together,
)

S = JobState
LANE = Lane("default", "default", 0)
WAYS = [
    Transition(S.PENDING, ExecutionState.FAILED, "again"),
    Transition(S.SCHEDULED, ExecutionState.FAILED, "later", timedelta(seconds=1)),
    Transition(S.WAITING, ExecutionState.SUSPENDED, "asleep", timedelta(seconds=1)),
]
"""Transitions after which a job can be claimed again."""


class ThreadLaws:
    """Concurrent threads lose nothing and do nothing twice."""

    def test_concurrent_claims_get_each_job_once(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(2000)])

        def work() -> list[Claim]:
            request = asks(store, new_id(), [LANE], 17)
            taken: list[Claim] = []
            while claims := patiently(store.claim, request, now=T0):
                taken += claims
            return taken

        claims = [claim for taken in together([work] * 8) for claim in taken]
        while rest := store.claim(asks(store, new_id(), [LANE], 1000), now=T0):
            claims += rest
        assert len(claims) == 2000
        assert {claim.id for claim in claims} == set(ids)
        assert {(claim.attempt, claim.token) for claim in claims} == {(1, 1)}

    def test_concurrent_steps_drain_a_store(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(400)])

        def work() -> list[UUID]:
            request = asks(store, new_id(), [LANE], 7)
            batch: list[Finish] = []
            done: list[UUID] = []
            while True:
                step = patiently(store.step, batch, request, now=T0)
                assert step.lost == frozenset()
                done += [finish.claim.id for finish in batch]
                batch = [Finish(claim, COMPLETED) for claim in step.claims]
                if not batch:
                    return done

        done = [id for ended in together([work] * 4) for id in ended]
        assert Counter(done) == Counter(ids)
        assert store.count(JobFilter(ALL_TENANTS)) == {S.COMPLETED: 400}

    def test_one_of_two_concurrent_finishes_wins(self, store: Store) -> None:
        for _ in range(20):
            claim = claim_one(store, put_one(store))
            ways = [Finish(claim, COMPLETED, '"won"'), Finish(claim, FAILED, '"won"')]
            lost = together([partial(patiently, store.finish, [way], now=T0) for way in ways])
            assert sorted(map(len, lost)) == [0, 1]
            winner = ways[1 if lost[0] else 0].transition
            assert get_one(store, claim.id).state is winner.state
            assert [x.state for x in executions_of(store, claim.id)] == [winner.execution]

    def test_one_of_many_concurrent_moves_wins(self, store: Store) -> None:
        move = Move(put_one(store), "default", frozenset({S.PENDING}), S.CANCELLED)
        moved = together([partial(patiently, store.move, [move], now=T0)] * 6)
        assert sorted(map(len, moved)) == [0, 0, 0, 0, 0, 1]

    def test_a_claim_and_a_cancel_never_both_get_a_job(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(200)])
        moves = [Move(id, "default", frozenset({S.PENDING}), S.CANCELLED) for id in ids]

        def cancel() -> list[UUID]:
            parts = [moves[start : start + 10] for start in range(0, 200, 10)]
            return [id for part in parts for id in patiently(store.move, part, now=T0)]

        def claim() -> list[UUID]:
            request = asks(store, new_id(), [LANE], 5)
            taken: list[UUID] = []
            while claims := patiently(store.claim, request, now=T0):
                taken += ids_of(claims)
            return taken

        got = [id for part in together([cancel, claim, cancel, claim]) for id in part]
        got += ids_of(store.claim(asks(store, new_id(), [LANE], 1000), now=T0))
        assert Counter(got) == Counter(ids)
        assert set(store.count(JobFilter(ALL_TENANTS))) <= {S.RUNNING, S.CANCELLED}

    def test_concurrent_promotions_move_each_job_once(self, store: Store) -> None:
        ids = put(store, *[a_job(run_at=at(1)) for _ in range(300)])

        def promote() -> int:
            return sum(patiently(store.promote, 40, now=at(1)).moved for _ in range(9))

        moved = together([promote] * 3)
        while extra := store.promote(1000, now=at(1)).moved:
            moved.append(extra)
        assert sum(moved) == 300
        claims = store.claim(asks(store, new_id(), [LANE], 1000), now=at(1))
        assert Counter(ids_of(claims)) == Counter(ids)

    def test_batches_in_opposite_order_move_each_job_once(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(100)])
        moves = [Move(id, "default", frozenset({S.PENDING}), S.CANCELLED) for id in ids]
        orders = [moves, moves[::-1], moves[50:] + moves[:50], moves[::-1]]
        moved = together([partial(patiently, store.move, order, now=T0) for order in orders])
        assert Counter(id for ids_moved in moved for id in ids_moved) == Counter(ids)

    def test_a_reader_sees_every_job_once_while_jobs_change(self, store: Store) -> None:
        ids = put(store, *[a_job(max_attempts=100) for _ in range(20)])
        done = threading.Event()

        def work() -> int:
            request = asks(store, new_id(), [LANE], 5)
            try:
                for n in range(40):
                    way = WAYS[n % len(WAYS)]
                    batch = [Finish(claim, way) for claim in patiently(store.claim, request, now=T0)]
                    patiently(store.finish, batch, now=T0)
                    patiently(store.promote, 100, now=at(1))
            finally:
                done.set()
            return 0

        def read() -> int:
            looks = 0
            while not done.is_set() or looks == 0:
                assert ids_of(patiently(store.get, ids, tenant="default")) == ids
                assert sum(patiently(store.count, JobFilter("default")).values()) == 20
                assert len(patiently(store.jobs, JobFilter("default")).items) == 20
                looks += 1
            return looks

        looks = together([work, read, read])
        assert min(looks[1:]) >= 1

    def test_concurrent_retries_keep_tokens_consistent(self, store: Store) -> None:
        ids = put(store, *[a_job(max_attempts=100) for _ in range(10)])

        def work() -> list[tuple[UUID, int]]:
            request = asks(store, new_id(), [LANE], 3)
            held: list[tuple[UUID, int]] = []
            for _ in range(25):
                claims = patiently(store.claim, request, now=T0)
                held += [(claim.id, claim.token) for claim in claims]
                batch = [Finish(claim, AGAIN) for claim in claims]
                assert patiently(store.finish, batch, now=T0) == frozenset()
            return held

        held = [pair for pairs in together([work] * 4) for pair in pairs]
        assert len(held) == len(set(held))
        for id in ids:
            tokens = sorted(token for job, token in held if job == id)
            assert tokens == [*range(1, len(tokens) + 1)]
            assert get_one(store, id).token == len(tokens)
            assert [x.number for x in executions_of(store, id)] == tokens
