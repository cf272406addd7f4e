"""Tests of the wire format: round trips, and rejection of invalid messages."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import (
    ID,
    NOW,
    a_claim,
    details,
    instants,
    json_objects,
    log_entries,
    outcomes,
    progresses,
    uuids,
    waits,
    words,
)

from tidemill.domain.job import NO_DETAILS, Claim, Details, LogEntry, Progress
from tidemill.domain.outcome import Outcome
from tidemill.domain.states import JobState
from tidemill.engine import frames
from tidemill.engine.frames import Wire
from tidemill.errors import PayloadTooLarge

texts = st.text(st.characters(), max_size=20)  # lone surrogates included
claims = st.builds(
    a_claim,
    id=uuids,
    task=texts,
    args=texts,
    priority=st.integers(-100, 100),
    token=st.integers(1, 2**62),
    run_at=instants,
    created_at=instants,
    expires_at=st.none() | instants,
    timeout=st.none() | waits,
    unique_key=st.none() | texts,
    limits=st.none() | st.lists(words, max_size=3).map(tuple),
    detailed=st.booleans(),
    seq=st.none() | st.integers(0, 2**62),
    state=st.sampled_from([JobState.CLAIMED, JobState.RUNNING]),
    cancel_reason=st.none() | texts,
    worker=st.none() | uuids,
)


@pytest.fixture
def pair() -> Iterator[tuple[Wire, Wire]]:
    ours, theirs = socket.socketpair()
    with closing(Wire(ours)) as one, closing(Wire(theirs)) as other:
        yield one, other


def sent(data: Any) -> Any:
    """The data after a round trip, which changes values that JSON cannot represent."""
    ours, theirs = socket.socketpair()
    with closing(Wire(ours)) as one, closing(Wire(theirs)) as other:
        one.send({"data": data})
        message = other.receive()
    assert message is not None
    return message["data"]


@given(claims)
def test_a_claim_survives_a_round_trip(claim: Claim) -> None:
    assert frames.claim_from_data(sent(frames.claim_to_data(claim))) == claim


@given(details)
def test_details_survive_a_round_trip(asked: Details) -> None:
    assert frames.details_from_data(sent(frames.details_to_data(asked))) == asked


def test_every_field_of_details_survives_a_round_trip() -> None:
    full = Details("c", ID, ("a", "b"), ("t",), {"m": [1]}, {"h": "x"}, {"o": None}, ID, 3, ID, NOW)
    assert frames.details_from_data(sent(frames.details_to_data(full))) == full
    assert frames.details_from_data(sent(frames.details_to_data(Details()))) is NO_DETAILS
    read_only = Details(metadata=MappingProxyType({"a": 1}))
    assert frames.details_from_data(sent(frames.details_to_data(read_only))) == Details(metadata={"a": 1})


@given(outcomes)
def test_an_outcome_survives_a_round_trip(outcome: Outcome) -> None:
    assert frames.outcome_from_data(sent(frames.outcome_to_data(outcome))) == outcome


@given(progresses)
def test_progress_survives_a_round_trip(progress: Progress) -> None:
    assert frames.progress_from_data(sent(frames.progress_to_data(progress))) == progress


@given(log_entries)
def test_a_log_line_survives_a_round_trip(entry: LogEntry) -> None:
    assert frames.entry_from_data(sent(frames.entry_to_data(entry))) == entry


@given(json_objects, texts)
def test_a_message_survives_a_round_trip(message: dict[str, Any], text: str) -> None:
    assert sent([message, text]) == [message, text]


def test_messages_arrive_one_by_one_and_none_after_the_end(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    for number in range(3):
        one.send({"number": number})
    one.close()
    assert [other.receive() for _ in range(4)] == [{"number": 0}, {"number": 1}, {"number": 2}, None]
    with pytest.raises(OSError, match="Broken pipe"):
        other.send({})


def test_many_threads_can_send_at_once(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    body = "x" * 100_000

    def send(number: int) -> None:
        for turn in range(20):
            one.send({"from": number, "turn": turn, "body": body})

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    turns: dict[int, list[int]] = {}
    for _ in range(80):
        message = other.receive()
        assert message is not None
        assert message["body"] == body
        turns.setdefault(message["from"], []).append(message["turn"])
    for thread in threads:
        thread.join()
    assert turns == {number: list(range(20)) for number in range(4)}


def test_a_message_over_the_limit_is_refused_before_anything_is_sent(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    with pytest.raises(PayloadTooLarge):
        one.send({"body": "x" * frames.LIMIT})
    one.send({"after": True})
    assert other.receive() == {"after": True}


@pytest.mark.parametrize(
    "rubbish",
    [
        struct.pack(">I", frames.LIMIT + 1),
        struct.pack(">I", 10) + b"short",
        b"\x00\x00",
        struct.pack(">I", 5) + b"hello",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 1) + b"\xff",
        struct.pack(">I", 20_000) + b"[" * 20_000,
    ],
)
def test_an_invalid_message_is_refused(rubbish: bytes) -> None:
    ours, theirs = socket.socketpair()
    with closing(Wire(theirs)) as wire:
        with ours:
            ours.sendall(rubbish)
        with pytest.raises(ConnectionError):
            wire.receive()


def test_a_value_that_cannot_be_serialized_is_refused(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    with pytest.raises(TypeError, match="a UUID cannot be sent"):
        one.send({"id": UUID(int=0)})
    one.send({"after": True})
    assert other.receive() == {"after": True}


def test_hanging_up_wakes_the_receiver_and_keeps_sent_messages(pair: tuple[Wire, Wire]) -> None:
    one, other = pair
    one.send({"last": "words"})
    heard: list[dict[str, Any] | None] = []
    thread = threading.Thread(target=lambda: heard.append(one.receive()))
    thread.start()
    one.hang_up()
    thread.join(10)
    assert heard == [None]
    assert other.receive() == {"last": "words"}
    assert other.receive() is None
    one.hang_up()
