"""Tests of the observer that declares workers gone."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.cluster import Heartbeat
from tidemill.domain.liveness import OUTAGE, GoneWorkers, Observer, confirm_after, holds_for, margin

BEAT, LEASE = timedelta(seconds=5), timedelta(seconds=30)
WORKER, OTHER = UUID(int=1), UUID(int=2)


def seen(beats: int, left: float, worker: UUID = WORKER, lease: timedelta = LEASE) -> Heartbeat:
    return Heartbeat(worker, beats, lease, timedelta(seconds=left))


def look(observer: Observer, at: float, *heartbeats: Heartbeat, took: float = 0.0) -> GoneWorkers:
    return observer.look(heartbeats, sent=at, answered=at + took)


def test_the_defaults_match_the_documentation() -> None:
    assert holds_for(LEASE) == 30
    assert margin(LEASE) == 5
    assert confirm_after(LEASE, BEAT) == 12


def test_a_silent_worker_is_gone_five_seconds_after_its_lease() -> None:
    observer = Observer(BEAT)
    for at in (0, 5, 10, 15, 20, 25, 30):
        assert look(observer, at, seen(7, 30 - at)).gone == []
    assert look(observer, 34.9, seen(7, -4.9)).again == pytest.approx(0.1)
    assert look(observer, 35, seen(7, -5)) == GoneWorkers([(WORKER, 7)])


def test_a_new_observer_confirms_an_expired_lease() -> None:
    observer = Observer(BEAT)
    assert look(observer, 100, seen(7, -300)).again == pytest.approx(12)
    assert look(observer, 111.9, seen(7, -312)).gone == []
    assert look(observer, 112, seen(7, -312)).gone == [(WORKER, 7)]


def test_one_observation_is_never_enough() -> None:
    assert look(Observer(BEAT), 10**6, seen(7, -(10**6))).gone == []


def test_a_lease_ends_by_the_observers_own_clock() -> None:
    observer = Observer(BEAT)
    look(observer, 0, seen(7, 3600))
    assert look(observer, 34.9, seen(7, 3565)).gone == []
    assert look(observer, 35, seen(7, 3565)).gone == [(WORKER, 7)]


def test_a_worker_known_to_be_alive_is_never_gone() -> None:
    observer = Observer(BEAT)
    gone: list[tuple[UUID, int]] = []
    for at in (0, 50, 100):
        heartbeats = [seen(7, -at), seen(7, -at, OTHER)]
        gone = observer.look(heartbeats, sent=at, answered=at, alive={WORKER}).gone
    assert gone == [(OTHER, 7)]


def test_an_outage_restarts_the_observation() -> None:
    observer = Observer(BEAT)
    look(observer, 0, seen(7, 30))
    observer.missed()
    assert look(observer, 40, seen(7, -10)).gone == []
    assert look(observer, 51.9, seen(7, -22)).gone == []
    assert look(observer, 52, seen(7, -22)).gone == [(WORKER, 7)]


def test_a_quickly_repeated_observation_continues() -> None:
    observer = Observer(BEAT)
    look(observer, 0, seen(7, 30))
    look(observer, 33, seen(7, -3))
    observer.missed()
    assert look(observer, 33 + OUTAGE.total_seconds() - 0.1, seen(7, -8)).gone == [(WORKER, 7)]


def test_a_slow_answer_only_extends_the_wait() -> None:
    observer = Observer(BEAT)
    look(observer, 0, seen(7, -100), took=8)
    assert look(observer, 19.9, seen(7, -120), took=8).gone == []
    assert look(observer, 20, seen(7, -120), took=8).gone == [(WORKER, 7)]


clock_steps = st.sampled_from([0.0, 60.0, -60.0, 3600.0, -3600.0])
waits = st.floats(0.5, 6.0)


@given(st.lists(st.tuples(waits, clock_steps), min_size=1, max_size=60), st.floats(0.0, 5.0))
def test_no_clock_step_declares_a_live_worker_gone(steps: list[tuple[float, float]], phase: float) -> None:
    """The worker sends a heartbeat every five seconds; the store's clock is stepped between any two observations."""
    observer, at, wall, expires = Observer(BEAT), 0.0, 0.0, LEASE.total_seconds()
    beats, next_beat = 0, phase
    for wait, clock_step in steps:
        until = at + wait
        while next_beat <= until:
            wall += next_beat - at
            at, beats, next_beat = next_beat, beats + 1, next_beat + 5.0
            expires = wall + 30.0
        wall += until - at + clock_step
        at = until
        assert look(observer, at, seen(beats, expires - wall)).gone == []


@given(st.lists(st.tuples(waits, clock_steps), min_size=80, max_size=80))
def test_a_dead_worker_is_gone_soon_despite_clock_steps(
    steps: list[tuple[float, float]],
) -> None:
    observer, at, wall = Observer(BEAT), 0.0, 0.0
    for wait, clock_step in steps:
        at, wall = at + wait, wall + wait + clock_step
        if look(observer, at, seen(7, 30.0 - wall)).gone:
            break
    assert 12.0 <= at <= 6.0 + 35.0 + 6.0  # the first look, the wait, and the interval between two looks


@given(st.floats(0.0, 30.0), st.floats(0.5, 5.0))
def test_no_worker_is_declared_gone_before_its_lease_ends(first: float, every: float) -> None:
    observer, at = Observer(BEAT), first
    while not look(observer, at, seen(7, 30.0 - at)).gone:
        at += every
    assert at >= holds_for(LEASE) + margin(LEASE) - 1e-6
