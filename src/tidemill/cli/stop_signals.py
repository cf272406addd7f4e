"""The signals that stop a command which runs until it is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that SIGTERM and Ctrl-C set inside the block.

    Keep the block open until everything has stopped: a further SIGTERM then changes nothing, and a second Ctrl-C interrupts.
    """
    event = threading.Event()
    with stop_calls(event.set):
        yield event


@contextmanager
def stop_calls(stop: Callable[[], object]) -> Iterator[None]:
    """Have SIGTERM and Ctrl-C call ``stop`` once inside the block. A second Ctrl-C interrupts the program."""
    is_stopping = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            stop()
        elif number == signal.SIGINT:
            signal.default_int_handler(number, frame)

    before = {number: signal.signal(number, handle) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for(event: threading.Event) -> None:
    """Wait for the event. Signals are handled between short waits on every system."""
    while not event.wait(3600.0):
        pass
