"""State of a child process that a job may change and that the child restores."""

from __future__ import annotations

import locale
import os
import signal
import sys
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    _LIMITS: list[int] = []
else:
    _LIMITS = sorted(
        {
            getattr(resource, name)
            for name in dir(resource)
            if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
        }
    )


class ChildState:
    """Process state that a job may have changed and that is cheap to restore. It closes nothing."""

    _NAMES = ("SIGTERM", "SIGINT", "SIGHUP", "SIGALRM", "SIGCHLD", "SIGUSR1", "SIGUSR2")
    _SIGNALS = tuple(signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__)

    def __init__(self) -> None:
        self._folder = Path.cwd()
        self._mask = os.umask(0o077)
        os.umask(self._mask)
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._handlers = {sign: signal.getsignal(sign) for sign in self._SIGNALS}
        self._locale = locale.setlocale(locale.LC_ALL)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._limits = {limit: resource.getrlimit(limit) for limit in _LIMITS}

    def restore(self) -> str | None:
        """Restore everything; if that fails, return why this process must be replaced."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        for sign, handler in self._handlers.items():
            if handler is not None and signal.getsignal(sign) is not handler:
                signal.signal(sign, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
        os.umask(self._mask)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        if sys.path != self._path:
            sys.path[:] = self._path
        try:
            for limit, (soft, hard) in self._limits.items():
                now = resource.getrlimit(limit)
                if now != (soft, hard):
                    # A lowered hard limit cannot be raised again without privileges. This process must then be
                    # replaced.
                    resource.setrlimit(limit, (soft, hard))
            os.chdir(self._folder)
            if locale.setlocale(locale.LC_ALL) != self._locale:
                locale.setlocale(locale.LC_ALL, self._locale)
            for number in (1, 2):
                os.fstat(number)
        except (OSError, ValueError, locale.Error) as error:
            return f"its environment cannot be restored: {error}"
        return None
