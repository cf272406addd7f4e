"""Laws of limits under concurrent threads."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import Rules
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    T0,
    a_job,
    asks,
    at,
    ordered_lanes,
    patiently,
    put,
    together,
)
from tidemill.testing.conformance.limited_claims import at_once, by_name, in_time

S = JobState
RULES = by_name(at_once("one", 1), at_once("three", 3), at_once("key", 2))
KINDS = [("one",), ("three",), ("three", "one"), ("key/a", "three"), ("three", "key/b"), ()]
THREADS, JOBS = 8, 120


class Outside:
    """Counts what threads hold, outside any store: from the claim until the end is written."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done = 0

    def take(self, claims: Collection[Claim]) -> None:
        with self._lock:
            self._held.update(name for claim in claims for name in claim.limits or ())
            self.most |= self._held

    def let_go(self, claims: Collection[Claim]) -> None:
        with self._lock:
            self._held.subtract(name for claim in claims for name in claim.limits or ())

    def note(self, number: int) -> None:
        with self._lock:
            self.done += number

    def check(self) -> None:
        """Check that no name was ever held more often than its rule allows."""
        for name, most in self.most.items():
            rule = self._rules.get(name) or self._rules[name.partition("/")[0]]
            assert most <= rule.max, f"{most} of {name} were held at once"


def crowd(store: Store, turn: Callable[[Outside, ClaimRequest, bool], None]) -> Outside:
    """Let threads take turns until every job is done; each shuffles the lanes."""
    outside = Outside(RULES)
    put(store, *[a_job(limits=KINDS[n % len(KINDS)], max_attempts=1000) for n in range(JOBS)])

    def work(seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311  (not used for security)
        worker = new_id()
        while outside.done < JOBS:
            lanes = patiently(ordered_lanes, store)
            rng.shuffle(lanes)
            turn(outside, asks(store, worker, lanes, rng.choice([1, 2, 5]), rules=RULES), rng.random() < 0.7)

    together([lambda seed=seed: work(seed) for seed in range(THREADS)])  # type: ignore[misc]
    return outside


class CrowdLaws:
    """Law 18: concurrent claims together never exceed a limit."""

    def test_concurrent_claims_and_finishes_exceed_no_limit(self, store: Store) -> None:
        def turn(outside: Outside, request: ClaimRequest, ends: bool) -> None:
            claims = patiently(store.claim, request, now=T0)
            outside.take(claims)
            assert {claim.id for claim in claims} <= {x.id for x in patiently(store.held, request.worker)}
            way = COMPLETED if ends else AGAIN
            outside.let_go(claims)
            assert patiently(store.finish, [Finish(claim, way) for claim in claims], now=T0) == frozenset()
            outside.note(len(claims) if way is COMPLETED else 0)

        outside = crowd(store, turn)
        outside.check()
        assert outside.most["one"] == 1
        assert store.count(JobFilter(ALL_TENANTS)) == {S.COMPLETED: JOBS}
        assert store.uses(RULES, now=T0) == []

    def test_concurrent_steps_exceed_no_limit(self, store: Store) -> None:
        hands = threading.local()

        def turn(outside: Outside, request: ClaimRequest, ends: bool) -> None:
            held: list[Claim] = getattr(hands, "held", [])
            outside.let_go(held)
            batch = [Finish(claim, COMPLETED if ends else AGAIN) for claim in held]
            step = patiently(store.step, batch, request, now=T0)
            assert step.lost == frozenset()
            outside.take(step.claims)
            hands.held = step.claims
            outside.note(len(held) if ends else 0)

        crowd(store, turn).check()
        assert store.count(JobFilter(ALL_TENANTS)) == {S.COMPLETED: JOBS}
        assert store.uses(RULES, now=T0) == []

    def test_concurrent_claims_exceed_no_rate(self, store: Store) -> None:
        rules = by_name(in_time("x", 7))
        put(store, *[a_job(limits=("x",)) for _ in range(60)])

        def work(now: datetime) -> int:
            request = asks(store, new_id(), patiently(store.gates), 2, rules=rules)
            return sum(len(patiently(store.claim, request, now=now)) for _ in range(5))

        begun: list[datetime] = []
        for second in (0, 9, 10, 15, 20):
            taken = together([partial(work, at(second))] * THREADS)
            # Two concurrent claims may each have counted the other; now there is no contention.
            begun += [at(second)] * sum([*taken, work(at(second))])
            assert sum(moment > at(second - 10) for moment in begun) <= 7
        assert len(begun) == 21
