"""Protection from signals with which a terminal suspends a process.

A suspended supervisor sends no heartbeats, so its runners lose their jobs. SIGTSTP (Ctrl-Z) gets a handler, which
programs started by jobs do not inherit. SIGTTIN and SIGTTOU are ignored: with a handler, a write to the terminal would
be retried endlessly.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

IGNORED = "Ctrl-Z is ignored: a stopped supervisor would lose its jobs; press Ctrl-C to stop the worker"


def refuse_halts(on_tstp: Callable[[int], object] = lambda _number: None) -> dict[int, Any]:
    """Keep terminals from suspending this process, and return the previous handlers. Call it on the main thread."""
    if not hasattr(signal, "SIGTSTP"):
        return {}
    before: dict[int, Any] = {
        signal.SIGTSTP: signal.signal(signal.SIGTSTP, lambda number, _frame: on_tstp(number))
    }
    for number in (signal.SIGTTIN, signal.SIGTTOU):
        before[number] = signal.signal(number, signal.SIG_IGN)
    return before
