"""Processes that must not outlive each other: a child dies with its parent, and a family is ended as a whole.

Whoever starts a process that calls ``die_with_parent`` must do so on a thread that stays: Linux counts the end of the
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
_LOOK = 0.01
_ROUNDS = 10  # a family that grows faster than it can be looked at is ended as far as it was seen


def die_with_parent(parent: int, sign: int = signal.SIGKILL) -> bool:
    """Have the kernel send this process a signal when its parent dies; False where it cannot (only Linux can).

    ``parent`` is who started us, by its own word: if somebody else is the parent by now, it is dead already.
    """
    if not _prctl(_PR_SET_PDEATHSIG, sign):
        return False
    if os.getppid() != parent:
        os.kill(os.getpid(), sign)
    return True


def tie_group(life: int) -> bool:
    """Have the kernel kill the group that this process leads when the other end of a pipe is closed; False where it cannot.

    Only Linux can. It asks neither the interpreter, which a job may hold, nor what else is in the group; and it does not
    depend on threads. Nobody may ever write to that pipe.
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
    # It may have been closed before we asked; of that the kernel does not tell again.
    waiting = select.poll()
    waiting.register(life, 0)
    if waiting.poll(0):
        _signal_group(os.getpgrp(), signal.SIGKILL)
    return True


def adopt_orphans() -> bool:
    """Become the parent of descendants whose own parent dies, so that none is lost from sight; False where impossible."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def descendants(*of: int) -> set[int]:
    """Children, their children and so on, those that ended and wait to be reaped included; empty where the system hides them."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208  (twice as fast, and it matters how fast a family is ended)
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
    """A process's state as a letter, and its parent; X and 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123  (as above)
            # The name of the program, in parentheses, may hold anything.
            state, parent = file.read(512).rpartition(b")")[2].split()[:2]
            return state, int(parent)
    except (OSError, ValueError):  # it ended while we looked
        return b"X", 0


def end_families(leaders: Collection[int]) -> set[int]:
    """Kill processes, the groups they lead, and all that descends from them, in whatever group or session; who these were.

    The leaders must be children of ours that nobody has reaped yet, so that their numbers cannot be somebody else's.
    """
    for leader in leaders:
        _signal_group(leader, signal.SIGSTOP)  # who stands still starts no more
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
    """Wait until processes that were killed have ended: that takes the kernel a moment."""
    moment = threading.Event()
    for _ in range(round(seconds / _LOOK)):
        if all(_state(pid)[0] in b"ZX" for pid in pids):
            return True
        moment.wait(_LOOK)
    return False


def end_own_descendants() -> None:
    """Kill all that descends from this process."""
    for pid in descendants(os.getpid()):
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, sign)


def _signal_group(leader: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, sign)


def end_in_words(code: int) -> str:
    """A process's exit code, or minus the signal that killed it, as a person reads it.

    >>> end_in_words(-9), end_in_words(3)
    ('was killed by SIGKILL', 'exited with code 3')
    """
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
