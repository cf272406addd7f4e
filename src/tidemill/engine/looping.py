"""An event loop for jobs, and what whoever steps on its thread has to offer."""

from __future__ import annotations

import asyncio
from typing import Protocol


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else Python's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Steps(Protocol):
    """Talks to the store on the loop's own thread, while there is so much to do that another thread would be in the way."""

    def wants(self) -> bool: ...

    def drive(self) -> bool: ...

    def leave(self) -> None: ...
