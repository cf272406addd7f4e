"""Child process of a runner: start, communication, kill and reaping.

This module does not depend on what the child runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Collection
from weakref import WeakSet

from tidemill.engine.confinement.launch import start
from tidemill.engine.deathwatch import are_gone, end_families, end_in_words
from tidemill.engine.frames import LOST_WIRE, Wire
from tidemill.tasks.confinement import Confinement

_MANNERS = 2.0  # seconds a child has to exit after its socket was closed
_WARNING = 1.0  # seconds between SIGTERM and SIGKILL
_LAST_MOMENT = 0.2  # seconds a child has to exit after it has closed its socket
_LOOK = 0.02  # seconds between two checks where the kernel cannot signal an exit

OVER_MEMORY, NOT_ENTERED = 72, 73
"""Exit codes of a sandbox: its processes used too much memory together, or it could not be set up."""

_REASONS = {
    LOST_WIRE: ", as its socket to the runner was closed",
    OVER_MEMORY: ", as its processes together used more memory than allowed",
    NOT_ENTERED: ", as it could not enter its sandbox",
    -signal.SIGXCPU: ", as it used up its processor time",
}

_held: WeakSet[ChildProcess] = WeakSet()


def _let_go_after_fork() -> None:
    for child in list(_held):
        child.let_go()


if hasattr(os, "register_at_fork"):
    # A fork of this process that kept our ends of the pipes open would hide our death from the children.
    os.register_at_fork(after_in_child=_let_go_after_fork)


class ChildProcess:
    """A started child process.

    Start it on a thread that outlives it (see ``deathwatch``), and always reap it.
    """

    def __init__(
        self, app_path: str, store_name: str | None = None, confinement: Confinement | None = None
    ) -> None:
        self.confinement = confinement
        ours, theirs = socket.socketpair()
        tied, self._life = os.pipe()
        self.wire = Wire(ours)
        try:
            self._launch = start(confinement, app_path, store_name, theirs, tied)
        except BaseException:
            self.let_go()
            raise
        finally:
            theirs.close()
            os.close(tied)
        self._process = self._launch.process
        self.pid = self._process.pid
        _held.add(self)
        self.jobs = 0  #: number of jobs it has run
        self.ready = False  #: whether it has imported the app
        self.doom: str | None = None  #: why it was killed before it was ready
        self._lock = threading.Lock()
        self._killed = self._reaped = False
        self._others: set[int] = set()  # descendants that were killed with it
        self._end = _open_pid(self.pid)
        self._waiting = select.poll()
        self._waiting.register(self.wire, select.POLLIN)
        if self._end is not None:
            self._waiting.register(self._end, select.POLLIN)

    def wait_with(self, wake: int, seconds: float | None) -> tuple[bool, bool, bool]:
        """Wait for a message, the child's exit or a readable ``wake``.

        Returns whether each of the three has happened.
        """
        self._waiting.register(wake, select.POLLIN)
        seen = {number for number, _ in self._waiting.poll(None if seconds is None else seconds * 1000)}
        ended = self._end is not None and self._end in seen
        if ended and self.wire.fileno() not in seen:
            # A last message may have arrived between the two polls. After the exit there are no later ones.
            seen.update(number for number, _ in self._waiting.poll(0))
        return self.wire.fileno() in seen, ended, wake in seen

    def kill(self) -> None:
        """Kill the child and all its descendants at once. Harmless if it has already exited."""
        kill_all([self])

    def reap(self) -> str:
        """Make sure that the child and its descendants have exited, and close its descriptors.

        Returns a description of the exit.
        """
        self.kill()
        if hasattr(os, "waitid"):
            # The pid is not reused until the child is reaped, and the lock is not held while waiting for the exit.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            code = self._process.wait()
            self._reaped = True
            if self._end is not None:
                os.close(self._end)
                self._end = None
        self.let_go()
        are_gone(self._others, _WARNING)
        self._launch.clean()
        return end_in_words(code) + _REASONS.get(code, "")

    def last_moment(self) -> None:
        """Give a child that closed its socket a moment to exit by itself, so that its exit code is meaningful."""
        self._ended_within(_LAST_MOMENT)

    def let_go(self) -> None:
        """Close the descriptors that tie the child to this process. A child that is still running exits then."""
        self.wire.close()
        life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    def dismiss(self) -> str:
        """Have the child exit by closing its socket, then by SIGTERM, then by SIGKILL.

        Returns a description of the exit.
        """
        if self.confinement is not None and not self.ready:
            return self.reap()  # it has not begun anything that an exit handler could complete
        self.wire.hang_up()
        if not self._ended_within(_MANNERS):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGTERM)
            self._ended_within(_WARNING)
        return self.reap()

    def _ended_within(self, seconds: float) -> bool:
        if self._end is not None:
            waiting = select.poll()
            waiting.register(self._end, select.POLLIN)
            return bool(waiting.poll(seconds * 1000))
        moment = threading.Event()
        for _ in range(round(seconds / _LOOK)):
            if self._process.poll() is not None:
                return True
            moment.wait(_LOOK)
        return False


def kill_all(children: Collection[ChildProcess]) -> None:
    """Kill all these children with one scan of the process table, so that many overdue children need no scan each."""
    with contextlib.ExitStack() as stack:
        for child in children:  # the locks keep the children from being reaped during the scan
            stack.enter_context(child._lock)
        living = [child for child in children if not child._reaped and not child._killed]
        if living:
            others = end_families([child.pid for child in living])
            for child in living:
                child._killed, child._others = True, others


def _open_pid(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process exits, or None where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
