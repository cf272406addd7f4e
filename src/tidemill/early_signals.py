"""Signals that reach a process before it can handle them, or after it has ended its work.

Without this, SIGTERM would end such a process with a failure, and the first process of a container would ignore it.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)]


def end_on_sigterm(code: int, *, reloads: bool = True) -> None:
    """Have SIGTERM end this process at once with this exit code. Call it on the main thread.

    It is for times at which there is nothing to stop and no code to reload. While the interpreter itself ends, these
    signals have no effect, and the process exits with the code that it has chosen. ``reloads`` is whether SIGHUP asks the
    process to reload its code; it then does nothing, and otherwise keeps its action.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(code))
    if reloads and hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    atexit.register(_ignore_signals)
    accept_signals()


def _ignore_signals() -> None:
    """Ignore the signals. An interpreter that ends replaces Python handlers by the default action, and keeps SIG_IGN."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def delayed_signals() -> Iterator[None]:
    """Signals to a process that is started inside wait until it calls ``accept_signals``.

    The kernel gives a new process the signal mask of the thread that starts it. Other threads of this process still receive signals.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def accept_signals() -> None:
    """Receive the signals that waited."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
