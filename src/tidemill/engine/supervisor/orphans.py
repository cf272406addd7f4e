"""Reaping of orphaned processes, which the supervisor inherits as PID 1.

As PID 1 of a container, the supervisor becomes the parent of every orphan. Without this, each would stay a zombie. The
supervisor's own children are registered here and never touched: the threads that started them reap them, because they
need the exit codes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

_PR_GET_CHILD_SUBREAPER = 37

_own: set[int] = set()


def register_child(pid: int) -> None:
    """Leave this child to the thread that started it."""
    _own.add(pid)


def forget_child(pid: int) -> None:
    """Remove a child that has been reaped."""
    _own.discard(pid)


def adopts_orphans() -> bool:
    """Whether orphans become children of this process: it is PID 1 or a child subreaper."""
    if os.getpid() == 1:
        return True
    if sys.platform != "linux":
        return False
    found = ctypes.c_int(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    return bool(found.value)


class Orphans:
    """Reaps orphans that have exited. Call ``look`` about once a second."""

    def __init__(self) -> None:
        self._enabled = adopts_orphans()
        self._seen: set[int] = set()

    def look(self) -> int:
        """Reap every unregistered zombie that the previous call has already seen. Returns the number reaped.

        A child that was started a moment ago may not be registered yet, so a zombie is left alone the first time.
        """
        if not self._enabled:
            return 0
        zombies = zombie_children() - _own
        reaped = 0
        for pid in zombies & self._seen:
            with contextlib.suppress(ChildProcessError):
                reaped += os.waitpid(pid, os.WNOHANG)[0] == pid
        self._seen = zombies
        return reaped


def zombie_children() -> set[int]:
    """Return the zombie children of this process; empty where ``/proc`` is not available."""
    me, found = str(os.getpid()).encode(), set()
    with contextlib.suppress(OSError):
        # ``os.listdir`` is the faster call, and this runs once a second over every process.
        for name in os.listdir("/proc"):  # noqa: PTH208
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read(512).rpartition(b")")[2].split()[:2]
                if state == b"Z" and parent == me:
                    found.add(int(name))
    return found
