"""The signals that stop a command which runs until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set inside the block."""
    event = threading.Event()
    before = {number: signal.signal(number, lambda _number, _frame: event.set()) for number in STOPPING}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(event: threading.Event) -> None:
    """Wait for the event. Signals are handled between short waits on every system."""
    while not event.wait(3600.0):
        pass
