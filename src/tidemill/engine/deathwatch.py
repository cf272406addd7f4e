"""Parent-death signals, and kills of whole process trees.

A process that calls ``die_with_parent`` must be started on a thread that stays alive: Linux counts the end of the
starting *thread* as the death of the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Collection

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
FORKED = 71
"""The exit code of a fork that returned from its parent's handler."""

_LOOK = 0.01
# A process tree that grows faster than this loop is killed as far as it was seen.
_ROUNDS = 10


def die_with_parent(parent: int, sign: int | None = None) -> bool:
    """Have the kernel send this process a signal when its parent dies; return False if it cannot (only Linux can).

    ``parent`` is the pid of the process that started this one. If the parent is a different one by now, it is dead
    already.
    """
    chosen = signal.SIGKILL if sign is None else sign
    if not _prctl(_PR_SET_PDEATHSIG, chosen):
        return False
    if os.getppid() != parent:
        os.kill(os.getpid(), chosen)
    return True


def tie_group(life: int) -> bool:
    """Have the kernel kill this process's group when the other end of a pipe is closed; return False if it cannot.

    Only Linux can. This works even while a job holds the GIL, whatever else is in the group, and does not depend on
    threads. Nothing may ever be written to that pipe.
    """
    if sys.platform != "linux":
        return False
    import fcntl

    try:
        fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    except (OSError, AttributeError):
        return False
    # The pipe may have been closed before this call. The kernel does not signal that again.
    waiting = select.poll()
    waiting.register(life, 0)
    if waiting.poll(0):
        _signal_group(os.getpgrp(), signal.SIGKILL)
    return True


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent dies; return False if impossible.

    Otherwise ``descendants`` would no longer find them.
    """
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def descendants(*of: int) -> set[int]:
    """All descendants, including those that ended and wait to be reaped; empty if the system hides them."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208  (twice as fast, and the speed of a kill matters)
            if name.isdigit() and (parent := _state(int(name))[1]):
                children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    waiting = list(of)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting += new
    return found


def _state(pid: int) -> tuple[bytes, int]:
    """A process's state as a letter, and its parent; X and 0 if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  (as above)
            # The name of the program, in parentheses, may contain any characters.
            state, parent = file.read(512).rpartition(b")")[2].split()[:2]
            return state, int(parent)
    except (OSError, ValueError):  # it ended during the look
        return b"X", 0


def end_families(leaders: Collection[int]) -> set[int]:
    """Kill processes, the groups they lead, and all their descendants in any group or session; return the descendants.

    The leaders must be children of this process that are not reaped yet, so that their pids cannot have been reused.
    """
    for leader in leaders:
        _signal_group(leader, signal.SIGSTOP)  # halted processes start no more processes
    family: set[int] = set()
    for _ in range(_ROUNDS):
        new = descendants(*leaders) - family
        if not new:
            break
        family |= new
        for pid in new:
            _signal(pid, signal.SIGSTOP)
    for leader in leaders:
        _signal_group(leader, signal.SIGKILL)
    for pid in family:
        _signal(pid, signal.SIGKILL)
    return family


def are_gone(pids: Collection[int], seconds: float) -> bool:
    """Wait until killed processes have ended, which takes the kernel a moment."""
    moment = threading.Event()
    for _ in range(round(seconds / _LOOK)):
        if all(_state(pid)[0] in b"ZX" for pid in pids):
            return True
        moment.wait(_LOOK)
    return False


def end_own_descendants() -> None:
    """Kill all descendants of this process."""
    for pid in descendants(os.getpid()):
        _signal(pid, signal.SIGKILL)


class Forks:
    """Counts the forks between this process and the program that was started.

    Reading the number costs nothing, while reading the process id costs a system call for every job.
    """

    number = 0

    @classmethod
    def count(cls) -> None:
        cls.number += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Forks.count)


def end_fork(number: int) -> None:
    """End this process if it was forked after this number was read: a handler forked it, and it returned from the handler.

    Only the process that holds the job may continue it.
    """
    if Forks.number != number:
        os._exit(FORKED)


def _signal(pid: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sign)


def _signal_group(leader: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sign)


def end_in_words(code: int) -> str:
    """Describe an exit code, or minus the number of the signal that killed a process.

    >>> end_in_words(-9), end_in_words(3)
    ('was killed by SIGKILL', 'exited with code 3')
    """
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
