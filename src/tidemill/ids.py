"""Time-ordered ids (UUID version 7), increasing within a process even inside one millisecond."""

from __future__ import annotations

import os
import threading
import time
from uuid import UUID

_lock = threading.Lock()
_last = 0

_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62


def new_id() -> UUID:
    """A fresh UUIDv7: 48 bits of milliseconds, a 12-bit counter that keeps order, 62 random bits.

    >>> new_id() < new_id()
    True
    """
    global _last  # noqa: PLW0603  (the counter is the process's)
    random = int.from_bytes(os.urandom(8)) >> 2
    with _lock:
        # The counter continues into the milliseconds when it runs over: order matters more than the exact instant.
        stamp = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = stamp
    return UUID(int=(stamp >> 12) << 80 | _VERSION | (stamp & 0xFFF) << 64 | _VARIANT | random)
