"""Random steps, signals and children of a durable function on every store, compared with a pure oracle (F6, F7 and F8).

The oracle knows lists and sets only. Each act is done by the holder of the job, or by a zombie with an old token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Additions, StepRecord, Wait
from tidemill.domain.job import Claim, Finish, Move
from tidemill.domain.signals import NewSignal, Posted, SignalFence
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store
from tidemill.testing.conformance.kit import SUSPENDED, T0, a_job, claim_one, put_one

SEQUENCES = 300
NAMES = ("a", "b")
Act = tuple[str, int, bool]

acts = st.lists(
    st.tuples(
        st.sampled_from(["post", "post_keyed", "take", "step", "children", "wake"]),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=16,
)


@dataclass
class Oracle:
    """The expected content of the store."""

    mailbox: list[int] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    records: dict[str, object] = field(default_factory=dict)
    children: set[UUID] = field(default_factory=set)
    sent: int = 0


class Player:
    """One durable job on a store, its holder and a zombie."""

    def __init__(self, store: Store) -> None:
        self.store, self.oracle = store, Oracle()
        self.id = put_one(store)
        first = claim_one(store, self.id)
        # The zombie held the job before: its token is too old for every write.
        store.finish([Finish(first, SUSPENDED, additions=Additions(waits=(Wait("none"),)))], now=T0)
        store.move([Move(self.id, "default", frozenset({JobState.WAITING}), JobState.PENDING)], now=T0)
        self.zombie, self.holder = first, claim_one(store, self.id)
        self.written: set[UUID] = set()

    def claim_of(self, zombie: bool) -> Claim:
        return self.zombie if zombie else self.holder

    def post(self, number: int, zombie: bool) -> None:
        self._post(None)

    def post_keyed(self, number: int, zombie: bool) -> None:
        self._post(f"k{number}")

    def _post(self, key: str | None) -> None:
        oracle = self.oracle
        oracle.sent += 1
        signal = NewSignal(self.id, "default", "go", json.dumps(oracle.sent), key)
        repeated = key is not None and key in oracle.keys
        assert self.store.post_signals([signal], now=T0) == [Posted.REPEATED if repeated else Posted.ACCEPTED]
        if not repeated:
            oracle.mailbox.append(oracle.sent)
            oracle.keys |= {key} if key is not None else set()

    def take(self, number: int, zombie: bool) -> None:
        """F7: the oldest signal goes into exactly one record."""
        oracle, name, claim = self.oracle, f"signal{number}", self.claim_of(zombie)
        fence = SignalFence(claim.id, claim.token, claim.worker)
        taken = self.store.take_signal(fence, ["go"], name, now=T0)
        if zombie:
            assert taken.lost
        elif name not in oracle.records and oracle.mailbox:
            oracle.records[name] = oracle.mailbox.pop(0)

    def step(self, number: int, zombie: bool) -> None:
        """F6: the first record of a step stands, and a zombie writes none."""
        oracle, claim, name = self.oracle, self.claim_of(zombie), NAMES[number % 2]
        value = json.dumps({"by": oracle.sent, "number": number})
        lost = self.store.record_steps([StepRecord(claim.id, claim.token, claim.worker, name, value)], now=T0)
        assert lost == ({claim.id} if zombie else frozenset())
        if not zombie:
            oracle.records.setdefault(name, json.loads(value))

    def children(self, number: int, zombie: bool) -> None:
        """F8: the children of a suspension exist with it, or not at all."""
        claim = self.claim_of(zombie)
        jobs = [a_job("child", waiting="for nothing") for _ in range(number)]
        additions = Additions(tuple(jobs), waits=(Wait("none"),))
        lost = self.store.finish([Finish(claim, SUSPENDED, additions=additions)], now=T0)
        self.written |= {job.id for job in jobs}
        assert lost == ({claim.id} if zombie else frozenset())
        if not zombie:
            self.oracle.children |= {job.id for job in jobs}
            move = Move(self.id, "default", frozenset({JobState.WAITING}), JobState.PENDING)
            assert self.store.move([move], now=T0) == {self.id}
            self.zombie, self.holder = claim, claim_one(self.store, self.id)

    def wake(self, number: int, zombie: bool) -> None:
        """A wake-up of a job that is not suspended changes nothing."""
        assert self.store.wake_receivers([self.id], now=T0) == []

    def compare(self) -> None:
        left = [json.loads(row.payload or "null") for row in self.store.signals(self.id, tenant="default")]
        assert left == self.oracle.mailbox
        found = self.store.checkpoints(self.id, tenant="default")
        assert found.keys() == self.oracle.records.keys()
        for name, value in self.oracle.records.items():
            stored = json.loads(found[name])
            # The record of a signal has its payload among other things.
            assert value in (stored, *stored.values()) if isinstance(stored, dict) else stored == value
        stored_ids = {job.id for job in self.store.get(self.written, tenant=ALL_TENANTS)}
        assert stored_ids == self.oracle.children


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "memory":
        opened: Store = MemoryStore()
    elif request.param == "sqlite":
        path = request.getfixturevalue("tmp_path")
        opened = open_store(f"sqlite:///{path}/jobs.db?synchronous=normal")
        opened.migrate()
    else:
        opened = open_store(request.getfixturevalue("migrated_postgres_url"))
    yield opened
    opened.close()


@settings(
    max_examples=SEQUENCES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plan=acts)
def test_random_steps_signals_and_children_are_written_once(store: Store, plan: list[Act]) -> None:
    player = Player(store)
    for kind, number, zombie in plan:
        getattr(player, kind)(number, zombie)
    player.compare()
    # The next sequence finds no claimable job.
    ids = [player.id, *player.oracle.children]
    unended = frozenset({JobState.PENDING, JobState.WAITING})
    store.move([Move(id, "default", unended, JobState.CANCELLED) for id in ids], now=T0)
