"""The job event loop, and the interface for store I/O on its thread."""

from __future__ import annotations

import asyncio
from typing import Protocol


def new_loop() -> asyncio.AbstractEventLoop:
    """Create a uvloop event loop if uvloop is installed, otherwise a standard one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopStepper(Protocol):
    """Runs store I/O on the loop's own thread while the load is so high that another thread would only contend with it."""

    def wants(self) -> bool: ...

    def drive(self) -> bool: ...

    def leave(self) -> None: ...
