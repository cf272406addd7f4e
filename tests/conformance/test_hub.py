"""Conformance tests of the verbs that a hand uses, over real brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

import pytest
from tests.engine.hub_kit import a_key
from tests.stores.wire_kit import wire_url

from tidemill.clock import SystemClock
from tidemill.engine.hub.guard import HandGuard
from tidemill.engine.hub.keys import Caller
from tidemill.engine.hub.server import Hub
from tidemill.stores.base import Store
from tidemill.stores.hub.protocol import VERBS
from tidemill.stores.hub.store import HubStore
from tidemill.stores.memory import MemoryStore
from tidemill.stores.wire.base import HubWire
from tidemill.stores.wire.open import open_wire
from tidemill.testing.conformance import (
    FlowConformance,
    LimitsConformance,
    QueriesConformance,
    RecordsConformance,
    UniqueConformance,
)
from tidemill.testing.conformance.advisory_locks import HeldLaws
from tidemill.testing.conformance.checkpoints import CheckpointFenceLaws, CheckpointLaws
from tidemill.testing.conformance.claims import ClaimLaws, ReportLaws, StartLaws, StepClaimLaws
from tidemill.testing.conformance.fences import FenceLaws
from tidemill.testing.conformance.steps import StepRecordLaws
from tidemill.testing.conformance.tasks import TaskRecordLaws


class OpenGuard(HandGuard):
    """Accepts any worker and any lane: the suite chooses them itself, and passes the time."""

    def _check_workers(self, caller: Caller, workers: Any) -> None:
        pass

    def _check_claim(self, verb: str) -> None:
        pass


class KeptWire:
    """A wire that stays open when a hub or a hand closes it."""

    def __init__(self, wire: HubWire) -> None:
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name in ("close", "stop_serving") else getattr(self._wire, name)


class HubbedStore:
    """A store whose worker verbs travel over the wire to a hub. In a transaction, which hands do not have, they do not."""

    def __init__(self, real: Store, far: HubStore) -> None:
        self._real, self._far = real, far
        self._inside = threading.local()

    def __getattr__(self, name: str) -> Any:
        if name in VERBS and not getattr(self._inside, "depth", 0):
            return getattr(self._far, name)
        return getattr(self._real, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._real.transaction():
            self._inside.depth = getattr(self._inside, "depth", 0) + 1
            try:
                yield
            finally:
                self._inside.depth -= 1


class WirePair:
    """The two ends of a wire, used by many tests."""

    def __init__(self, url: str) -> None:
        self.hub, self.hand = open_wire(url), open_wire(url)

    def close(self) -> None:
        self.hand.close()
        self.hub.close()

    @cached_property
    def ends(self) -> tuple[HubWire, HubWire]:
        return cast("HubWire", KeptWire(self.hub)), cast("HubWire", KeptWire(self.hand))


@contextmanager
def hubbed(pair: WirePair) -> Iterator[Store]:
    """A memory store behind a hub."""
    real = MemoryStore()
    secret = a_key(real)
    hub = Hub(real, SystemClock(), [pair.ends[0]], guard=OpenGuard(real, pins_time=False))
    hub.start()
    # A broker drops a request that arrives before a hub listens, and a hand would wait for its answer in vain.
    pair.hub.wait_connected(30.0)
    far = HubStore(pair.ends[1], secret)
    try:
        yield cast("Store", HubbedStore(real, far))
    finally:
        hub.close()
        real.close()


def pair_over(kind: str) -> Iterator[WirePair]:
    with wire_url(kind) as url:
        pair = WirePair(url)
        yield pair
        pair.close()


@pytest.fixture(scope="module")
def nats_pair() -> Iterator[WirePair]:
    yield from pair_over("nats")


@pytest.fixture(scope="module")
def rabbitmq_pair() -> Iterator[WirePair]:
    yield from pair_over("rabbitmq")


class TestOverNats(
    FlowConformance,
    UniqueConformance,
    QueriesConformance,
    RecordsConformance,
    LimitsConformance,
    TaskRecordLaws,
):
    """The parts of the contract that a hand uses."""

    @pytest.fixture
    def store(self, nats_pair: WirePair) -> Iterator[Store]:
        with hubbed(nats_pair) as store:
            yield store


class TestOverRabbitMQ(
    ClaimLaws,
    StartLaws,
    ReportLaws,
    StepClaimLaws,
    FenceLaws,
    HeldLaws,
    CheckpointLaws,
    CheckpointFenceLaws,
    StepRecordLaws,
    TaskRecordLaws,
):
    """The fenced verbs. Both wires carry the same messages, and a request over RabbitMQ takes many times as long."""

    @pytest.fixture
    def store(self, rabbitmq_pair: WirePair) -> Iterator[Store]:
        with hubbed(rabbitmq_pair) as store:
            yield store


del FlowConformance, UniqueConformance, QueriesConformance, RecordsConformance, LimitsConformance
del ClaimLaws, StartLaws, ReportLaws, StepClaimLaws, FenceLaws, HeldLaws, CheckpointLaws, CheckpointFenceLaws
del StepRecordLaws, TaskRecordLaws
