"""Worker status for the service manager, sent over ``NOTIFY_SOCKET``.

Without that variable nothing is sent.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

from tidemill.clock import Clock


class Notifier:
    """Implements systemd's notification protocol: ``ready``, ``stopping``, a status line, and the watchdog.

    A message that cannot be delivered is dropped: the worker must not depend on the service manager.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock, *, pid: int) -> None:
        self._clock = clock
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._status = ""
        self._every = _interval(environment, pid) if self._address else None
        self._pinged_at = float("-inf")

    @property
    def watched(self) -> bool:
        """Whether the service manager restarts a worker that stops pinging."""
        return self._every is not None

    def ready(self) -> None:
        self._send("READY=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, line: str) -> None:
        """Set the line that ``systemctl status`` shows. It is sent only when it changes."""
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def ping(self) -> None:
        """Ping twice per watchdog interval. Call this often from the loop that must not hang."""
        if self._every is not None and self._clock.monotonic() - self._pinged_at >= self._every:
            self._pinged_at = self._clock.monotonic()
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(text.encode(), self._address)


def _address(given: str) -> str:
    """Return an absolute path, or an abstract name, which is written with an @ and begins with a NUL on the wire."""
    if given.startswith("@"):
        return "\0" + given[1:]
    return given if given.startswith("/") else ""


def _interval(environment: Mapping[str, str], pid: int) -> float | None:
    """Return half of the watchdog's interval, if it watches this process."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    microseconds = environment.get("WATCHDOG_USEC", "")
    return int(microseconds) / 2_000_000 if microseconds.isdigit() and int(microseconds) else None
