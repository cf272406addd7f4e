"""Tests of merged wake-ups."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tidemill.stores.coalescer import Coalescer

PATIENCE = 30.0
LONG = 600.0
"""A gap that does not pass during a test."""


class Sink:
    """Records what was sent, by which thread and when; can be made to fail."""

    def __init__(self) -> None:
        self.sent: list[frozenset[str]] = []
        self.threads: list[threading.Thread] = []
        self.times: list[float] = []
        self.fails = False
        self._changed = threading.Condition()

    def __call__(self, topics: frozenset[str]) -> None:
        with self._changed:
            self.sent.append(topics)
            self.threads.append(threading.current_thread())
            self.times.append(time.monotonic())
            self._changed.notify_all()
        if self.fails:
            raise ConnectionError("the server is gone")

    def wait_for(self, count: int) -> None:
        """Return when that many batches have been sent."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.sent) >= count, PATIENCE)


def test_the_first_topics_are_sent_at_once_without_blocking_the_caller() -> None:
    sink = Sink()
    coalescer = Coalescer(sink, gap=LONG)
    coalescer.offer(["a", "b"])
    sink.wait_for(1)
    assert sink.sent == [{"a", "b"}]
    assert threading.current_thread() not in sink.threads
    coalescer.close()


def test_topics_within_the_gap_are_merged_and_sent_after_it() -> None:
    sink = Sink()
    coalescer = Coalescer(sink, gap=0.05)
    begun = time.monotonic()
    coalescer.offer(["a"])
    sink.wait_for(1)
    coalescer.offer(["b"])
    coalescer.offer(["c", "b"])
    sink.wait_for(2)
    assert sink.sent == [{"a"}, {"b", "c"}]
    assert sink.times[1] - begun >= 0.05
    coalescer.close()


def test_topics_after_an_idle_gap_are_sent_at_once() -> None:
    sink = Sink()
    coalescer = Coalescer(sink, gap=0.0)
    for count, topic in enumerate(("a", "b", "c"), 1):
        coalescer.offer([topic])
        sink.wait_for(count)
    assert sink.sent == [{"a"}, {"b"}, {"c"}]
    coalescer.close()


def test_an_empty_offer_sends_nothing() -> None:
    sink = Sink()
    before = set(threading.enumerate())
    coalescer = Coalescer(sink, gap=LONG)
    coalescer.offer([])
    assert set(threading.enumerate()) == before
    coalescer.close()
    assert sink.sent == []


def test_close_sends_pending_topics_and_ends_the_thread() -> None:
    sink = Sink()
    before = set(threading.enumerate())
    coalescer = Coalescer(sink, gap=LONG)
    coalescer.offer(["a"])
    sink.wait_for(1)
    coalescer.offer(["b"])
    coalescer.offer(["c"])
    coalescer.close()
    assert sink.sent == [{"a"}, {"b", "c"}]
    assert set(threading.enumerate()) == before


def test_a_second_close_and_a_late_offer_are_harmless() -> None:
    sink = Sink()
    coalescer = Coalescer(sink, gap=LONG)
    coalescer.offer(["a"])
    sink.wait_for(1)
    coalescer.close()
    coalescer.close()
    coalescer.offer(["b"])
    assert sink.sent == [{"a"}]


def test_a_failed_send_is_ignored_and_the_next_one_is_tried() -> None:
    sink = Sink()
    sink.fails = True
    coalescer = Coalescer(sink, gap=0.01)
    coalescer.offer(["first"])
    sink.wait_for(1)
    coalescer.offer(["second"])
    sink.wait_for(2)
    coalescer.offer(["once more"])
    sink.wait_for(3)
    coalescer.offer(["at the end"])
    coalescer.close()
    assert frozenset().union(*sink.sent) == {"first", "second", "once more", "at the end"}


def test_offers_of_many_threads_are_all_sent_in_few_batches() -> None:
    sink, gap = Sink(), 0.005
    coalescer = Coalescer(sink, gap=gap)
    begun = time.monotonic()

    def offer(thread: int) -> None:
        for n in range(250):
            coalescer.offer([f"{thread}-{n}"])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(offer, range(8)))
    coalescer.close()
    elapsed = time.monotonic() - begun
    assert frozenset().union(*sink.sent) == {f"{thread}-{n}" for thread in range(8) for n in range(250)}
    # The first batch, one for each gap, and the rest sent by close.
    assert len(sink.sent) <= 2 + elapsed / gap


def test_a_second_turn_within_the_gap_is_refused() -> None:
    coalescer = Coalescer(lambda topics: None, gap=60.0)
    assert coalescer.take_turn()
    assert not coalescer.take_turn()
    coalescer.close()
    assert not coalescer.take_turn()


def test_no_turn_overtakes_topics_that_wait_for_their_gap() -> None:
    sink = Sink()
    coalescer = Coalescer(sink, gap=LONG)
    assert coalescer.take_turn()
    coalescer.offer(["ready:a"])
    coalescer._last = float("-inf")
    assert not coalescer.take_turn()
    coalescer.close()
    assert sink.sent == [frozenset({"ready:a"})]
