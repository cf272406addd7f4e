"""How a wire treats its connection, with any broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tidemill.errors import StoreUnavailable
from tidemill.stores.wire.base import BrokerWire, Transport
from tidemill.stores.wire.frames import Assembler, MessageKind, WireMessage, frames_of


class FakeTransport:
    """A connection to a hub that answers with the request, unless the broker has lost the queue for the answers."""

    largest = 1 << 20

    def __init__(self, addresses: list[str], received: Callable[[bytes], None], *, keeps_queue: bool) -> None:
        self.addresses, self._received, self._keeps_queue = addresses, received, keeps_queue
        self.lost = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def publish(self, to: str, frame: bytes) -> None:
        request = Assembler().add(frame)
        assert request is not None
        if self._keeps_queue and f"hand.{request.sender}" in self.addresses:
            answer = WireMessage(MessageKind.ANSWER, request.sender, request.number, request.body)
            for part in frames_of(answer, self.largest):
                self._received(part)

    async def leave(self) -> None: ...

    async def wait_lost(self) -> None:
        await self.lost.wait()

    async def close(self) -> None: ...


class FakeWire(BrokerWire):
    """A wire whose first connections have lost their queues."""

    def __init__(self, without_queue: int = 0) -> None:
        super().__init__("amqp://broker/shop")
        self._without_queue = without_queue
        self.transports: list[FakeTransport] = []

    async def _open(self, addresses: list[str], received: Callable[[bytes], None]) -> Transport:
        keeps_queue = len(self.transports) >= self._without_queue
        self.transports.append(FakeTransport(addresses, received, keeps_queue=keeps_queue))
        return self.transports[-1]


@pytest.fixture
def wire() -> Iterator[FakeWire]:
    wire = FakeWire()
    yield wire
    wire.close()


@pytest.fixture
def broken() -> Iterator[FakeWire]:
    wire = FakeWire(without_queue=1)
    yield wire
    wire.close()


def test_each_connection_receives_at_an_address_of_its_own(wire: FakeWire) -> None:
    """A broker may keep the queue of the former connection locked, and delete it by its name later."""
    assert wire.request(b"one", 10) == b"one"
    (first,) = wire.transports
    wire._connected.clear()
    first.loop.call_soon_threadsafe(first.lost.set)
    assert wire.request(b"two", 10) == b"two"
    second = wire.transports[-1]
    assert first.addresses[0] != second.addresses[0]
    assert first.addresses[1:] == second.addresses[1:] == ["hands"]


def test_a_connection_over_which_no_answer_arrives_is_replaced(broken: FakeWire) -> None:
    with pytest.raises(StoreUnavailable, match="no hub answered"):
        broken.request(b"one", 0.01)
    answers: list[bytes] = []
    while not answers:  # until the connection has been replaced
        try:
            answers.append(broken.request(b"two", 1))
        except StoreUnavailable:
            continue
    assert answers == [b"two"]
    assert len(broken.transports) == 2
