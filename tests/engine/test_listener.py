"""Tests that the listener recovers from errors and reports a change afterwards."""

from __future__ import annotations

import logging
import threading

import pytest
from tests.engine.cluster_kit import Line

from tidemill.clock import SystemClock
from tidemill.engine.listener import WakeupListener
from tidemill.stores.memory import MemoryStore

PATIENCE = 20.0


@pytest.mark.parametrize("error", [ValueError("no such answer"), KeyError("what")])
def test_a_listener_that_fails_logs_the_error_and_listens_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    line, heard, tried = Line(MemoryStore()), threading.Event(), threading.Event()

    def broken(verb: str, given: tuple[object, ...]) -> BaseException | None:
        if verb != "listen" or tried.is_set():
            return None
        tried.set()
        return error

    line.broken = broken
    listener = WakeupListener(line.store, SystemClock())
    listener.subscribe(lambda topics: heard.set() if "change" in topics else None)
    with caplog.at_level(logging.ERROR, "tidemill.engine"):
        listener.start()
        assert heard.wait(PATIENCE)
    listener.close()
    assert tried.is_set()
    assert "listening failed; retrying" in caplog.text
