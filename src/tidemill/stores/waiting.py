"""How a thread waits for its database: idly, or doing something else meanwhile that it was told to do.

A worker's loop thread has coroutines to run while a statement is under way. Whoever is told nothing waits idly.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

meanwhile: ContextVar[Callable[[int], None] | None] = ContextVar("tidemill_meanwhile", default=None)
"""Called with a file that will be readable some time; returns when it may be, or earlier."""
