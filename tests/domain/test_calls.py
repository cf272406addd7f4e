"""Tests of calls: which workers answer a wake-up."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.calls import (
    FEWEST,
    SMALL,
    UNKNOWN,
    Call,
    Fleet,
    call_for,
    fleet_of,
    is_called,
    merged,
    read_calls,
    read_fleet,
    without_calls,
)
from tidemill.domain.cluster import Worker, WorkerState

ids = st.uuids()
calls = st.builds(Call, st.integers(0, 2**30), st.integers(1, 10_000))
queues = st.sampled_from(["default", "mail", "a:b", "reports"])


@given(ids, st.lists(calls, max_size=3), st.integers(0, SMALL - 1))
def test_every_worker_of_a_small_or_unknown_fleet_answers(worker: UUID, sent: list[Call], size: int) -> None:
    assert is_called(worker, sent, size)


@given(ids, st.integers(0, 10_000))
def test_a_wake_up_without_a_call_concerns_every_worker(worker: UUID, size: int) -> None:
    assert is_called(worker, [], size)


@pytest.mark.parametrize("size", [SMALL, 100, 1_000])
@pytest.mark.parametrize("wanted", [1, 20, 5_000])
@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_call_wakes_about_as_many_workers_as_it_wants(size: int, wanted: int, place: float) -> None:
    source = random.Random(f"{size} {wanted} {place}")
    workers = [UUID(int=source.getrandbits(128)) for _ in range(size)]
    (call,) = read_calls([call_for(wanted, int(place * 2**40))])
    woken = sum(is_called(worker, [call], size) for worker in workers)
    expected = min(size, max(FEWEST, wanted))
    spread = 6 * (expected * (1 - expected / size)) ** 0.5 + 1
    assert abs(woken - expected) <= spread


@given(st.lists(calls, min_size=1, max_size=5), st.integers(SMALL, 500), ids)
def test_merged_calls_want_the_jobs_of_all_of_them(sent: list[Call], size: int, worker: UUID) -> None:
    topics = frozenset({"ready:default", *(call.topic for call in sent)})
    together = merged(topics)
    (one,) = read_calls(together)
    assert one.wanted == sum(call.wanted for call in {call.topic: call for call in sent}.values())
    assert without_calls(together) == {"ready:default"}
    assert is_called(worker, [one], size) or one.wanted < size


@given(st.lists(st.tuples(st.frozensets(queues), st.sampled_from(WorkerState)), max_size=60), queues)
def test_workers_learn_the_number_of_active_workers_that_serve_a_queue(
    crew: list[tuple[frozenset[str], WorkerState]], queue: str
) -> None:
    fleet = fleet_of(
        Worker(UUID(int=number), "w", queues=tuple(served), state=state)
        for number, (served, state) in enumerate(crew)
    )
    heard = read_fleet({"tick", "ready:default", *fleet.topics})
    serving = sum(state is WorkerState.ACTIVE and (not served or queue in served) for served, state in crew)
    assert fleet.serving(queue) == serving
    # A small fleet is not announced at all.
    assert heard in (fleet, UNKNOWN)
    assert heard == fleet or max([fleet.everywhere, *fleet.named.values()]) < SMALL


@given(st.data(), st.integers(1, 80), st.integers(0, 200))
def test_no_call_leaves_a_job_to_anything_but_the_repeated_wake_up(
    data: st.DataObject, size: int, announced: int
) -> None:
    """Random fleets, wrong announcements, lost messages and busy workers: the repetition reaches every idle listener."""
    workers = [UUID(int=data.draw(st.integers(0, 2**128 - 1))) for _ in range(size)]
    idle = {worker for worker in workers if data.draw(st.booleans())}
    call = data.draw(calls)
    answers = {worker for worker in idle if is_called(worker, [call], announced)}
    # The job is pending unless an idle worker answered; then the leader sends the wake-up without a call.
    repeated = set() if answers else {worker for worker in idle if is_called(worker, [], announced)}
    assert (answers | repeated) or not idle


@pytest.mark.parametrize(
    "topic", ["call:", "call:x:1", "call:1", "call:-1:2", "call:1:", "fleet:", "fleet:x:q"]
)
def test_unreadable_topics_of_newer_senders_are_ignored(topic: str) -> None:
    assert read_calls([topic]) == []
    assert read_fleet([topic]) == UNKNOWN


def test_a_fleet_with_too_many_named_queues_is_unknown() -> None:
    crew = [Worker(UUID(int=n), "w", queues=(f"q{n}",)) for n in range(101)]
    assert fleet_of(crew) == UNKNOWN
    assert Fleet(40).topics == {"fleet:40"}
