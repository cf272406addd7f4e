"""One runner process, as seen by the supervisor, and the delay before its restart.

Nothing here uses the store or decides the state of jobs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from tidemill.clock import Clock
from tidemill.early_signals import delayed_signals
from tidemill.engine.deathwatch import end_families
from tidemill.engine.frames import Wire
from tidemill.engine.log_formats import LogOutput
from tidemill.engine.process_memory import resident_memory
from tidemill.engine.supervisor.orphans import forget_child, register_child
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.ids import new_id

_log = logging.getLogger("tidemill.worker")

# Seconds to wait for the process after its socket closes, and for the last messages after it exits.
_LAST_WORDS = 1.0
_SEND_LIMIT = struct.pack("@ll", 1, 0)  # seconds and microseconds
# Only the supervisor talks to the service manager.
_PRIVATE = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
)


class RunnerPhase(StrEnum):
    """The phase of a runner's life."""

    STARTING = "starting"  #: it imports the app
    JOINING = "joining"  #: it has connected and waits to be registered
    WORKING = "working"
    DRAINING = "draining"  #: it finishes its jobs and claims no more
    STOPPING = "stopping"
    LOST = "lost"  #: its lease expired: it stops its jobs and writes nothing
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class RunnerMessage:
    """A message that a runner sent."""

    runner: RunnerProcess
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunnerExited:
    """The exit of a runner's process, with its exit code, or minus the number of the signal that killed it."""

    runner: RunnerProcess
    code: int


Emit = Callable[[RunnerMessage | RunnerExited], None]


class RunnerProcess:
    """A started process. ``worker`` is its id in the store, new for every process. The supervisor owns all attributes.

    One thread reads its messages and another waits for its exit. Both only call ``emit``.
    """

    def __init__(
        self, seat: int, command: Sequence[str], emit: Emit, clock: Clock, store_name: str | None = None
    ) -> None:
        self.seat = seat
        self.store_name = store_name  #: the store whose jobs it runs, if the app has several
        self.worker: UUID = new_id()
        self.phase = RunnerPhase.STARTING
        self.ready = False
        self.stats: Mapping[str, Any] = {}
        self.failure: str | None = None  #: why it could not import the app
        self.asked = False  #: the supervisor asked it to exit, so its exit is expected
        self.kill_at: float | None = None
        self.killed = False  #: because it exceeded its time to stop
        self.overdue: dict[tuple[UUID, int], float] = {}  #: jobs seen past their timeout, and since when
        self.unwell: str | None = None  #: a symptom that does not require a replacement yet
        self.sick: str | None = None  #: why it is being replaced although it is alive
        self.blamed: frozenset[UUID] = frozenset()  #: the jobs that made it sick, if known
        self.done = False  #: it reported that it holds no jobs
        self._clock, self._emit = clock, emit
        self.started_at = self.spoke_at = clock.monotonic()
        ours, theirs = socket.socketpair()
        self.hooks, their_hooks = socket.socketpair()  #: for ``runner_hooks``
        self.wakeups, their_wakeups = socket.socketpair()  #: for ``relay``
        # A halted process reads nothing. The timeout keeps a sender in the supervisor from blocking on it.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_LIMIT)
        environment = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
        tied, self._life = os.pipe()  # closed by the kernel when this process dies
        words = ["--fd", str(theirs.fileno()), "--life", str(tied), "--parent", str(os.getpid())]
        words += ["--hooks", str(their_hooks.fileno()), "--wakeups", str(their_wakeups.fileno())]
        try:
            # Its own process group: Ctrl-C in a terminal reaches only the supervisor, and a kill includes the runner's
            # children.
            # A service manager may signal all processes of the worker, this new one included.
            with delayed_signals():
                self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                    [*command, *words],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), their_hooks.fileno(), their_wakeups.fileno(), tied),
                    process_group=0,
                    env=environment,
                )
        except OSError:
            ours.close()
            self.hooks.close()
            self.wakeups.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            their_hooks.close()
            their_wakeups.close()
            os.close(tied)
        self.pid = self._process.pid
        register_child(self.pid)
        self._socket = ours
        self._wire: Wire | None = Wire(ours)
        self._ended, self._reaping = threading.Event(), threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"tidemill-hear-{seat}", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name=f"tidemill-wait-{seat}", daemon=True)
        self._reader.start()
        self._waiter.start()

    def __str__(self) -> str:
        store = "" if self.store_name is None else f" of store {self.store_name!r}"
        return f"runner {self.seat}{store} (pid {self.pid})"

    # Messages from the runner ----------------------------------------------------------------------------------------

    def _read(self) -> None:
        wire = self._wire
        assert wire is not None
        with contextlib.suppress(OSError, ValueError):
            while (message := wire.receive()) is not None:
                self._emit(RunnerMessage(self, message))
        # A runner with a closed socket can no longer be asked to stop. It exits now, or it is killed.
        if not self._ended.wait(_LAST_WORDS):
            self.kill()

    def _wait(self) -> None:
        """Wait for the process and reap it. Nothing else reaps it: until then its pid and its group id cannot be reused."""
        if hasattr(os, "waitid"):
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            if end is not None and (end.si_code != os.CLD_EXITED or end.si_status != 0):
                # Processes that it started must not outlive it.
                end_families([self.pid])
        else:
            self._process.wait()
        with self._reaping:
            self._ended.set()
            code = self._process.wait()
        forget_child(self.pid)
        self._reader.join(_LAST_WORDS)  # its last messages come before its exit
        self._emit(RunnerExited(self, code))

    # Messages to the runner ------------------------------------------------------------------------------------------

    def tell(self, kind: str, **fields: object) -> bool:
        """Send a message; return False if the runner is unreachable, which its exit will explain."""
        if self._wire is None:
            return False
        try:
            self._wire.send({"kind": kind, **fields})
        except (OSError, ValueError):
            self._wire = None  # part of a message may have been sent
            return False
        return True

    def condemn(self, reason: str) -> None:
        """Record why it is replaced although it is alive, and which job blocked its event loop, if known."""
        blocking = self.condition.get("blocking")
        self.sick, self.blamed = reason, frozenset() if blocking is None else frozenset({UUID(blocking)})

    def kill(self) -> None:
        """Kill it and all processes it started."""
        with self._reaping:
            if not self._ended.is_set():
                end_families([self.pid])

    def close(self) -> None:
        """Release the sockets and the pipe after the process has ended."""
        self.phase, self._wire = RunnerPhase.GONE, None
        self._socket.close()
        self.hooks.close()
        self.wakeups.close()
        life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    # State -----------------------------------------------------------------------------------------------------------

    @property
    def condition(self) -> Mapping[str, Any]:
        """Its last report about itself; see ``selfcheck``."""
        found = self.stats.get("condition", {})
        return found if isinstance(found, dict) else {}

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return self._clock.monotonic() - self.started_at

    @property
    def silence(self) -> float:
        """Seconds since its last message."""
        return self._clock.monotonic() - self.spoke_at

    def memory(self) -> int | None:
        """Resident memory in bytes; None if the system does not report it."""
        return resident_memory(self.pid)

    def is_stopped(self) -> bool:
        """Whether the process is halted (SIGSTOP, a debugger)."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False


def settings_to_data(settings: WorkerSettings) -> dict[str, object]:
    """The settings as they are sent to a runner. ``read_settings`` reads them."""
    fields: dict[str, object] = {}
    for name in WorkerSettings.__dataclass_fields__:
        value = getattr(settings, name)
        fields[name] = value.total_seconds() if isinstance(value, timedelta) else value
    return fields


def runner_command(app: str, *, logs: LogOutput | None = None, sources: bool = False) -> list[str]:
    """The command that starts a runner, without its socket, its pipe and its parent."""
    words = [sys.executable, "-m", "tidemill.engine.runner.main", "--app", app]
    return words + (logs or LogOutput()).words() + ["--sources"] * sources


class Backoff:
    """The delay before the next start: doubled after each short life, and reset after a long one.

    >>> backoff = Backoff()
    >>> [backoff.after(lived=0.0) for _ in range(3)], backoff.after(lived=3600.0)
    ([0.1, 0.2, 0.4], 0.1)
    """

    def __init__(self, first: float = 0.1, longest: float = 30.0, long_life: float = 60.0) -> None:
        self._first, self._longest, self._long_life = first, longest, long_life
        self.deaths = 0  #: consecutive short lives

    def after(self, lived: float) -> float:
        """Seconds to wait after a process that lived for ``lived`` seconds."""
        self.deaths = 1 if lived >= self._long_life else self.deaths + 1
        return min(self._first * 2.0 ** (min(self.deaths, 64) - 1), self._longest)
