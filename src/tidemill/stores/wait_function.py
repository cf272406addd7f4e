"""The waiting function of a thread: what it does while it waits for its database.

A worker's loop thread runs coroutines while a statement is executed. Other threads just wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

wait_function: ContextVar[Callable[[int], None] | None] = ContextVar("tidemill_wait_function", default=None)
"""Called with a file descriptor; returns when it may be readable, or earlier."""
