"""One runner process as the supervisor sees it: how it is started, what it says, how it ends, when to start another.

Nothing here touches the store or decides what becomes of jobs.
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
from tidemill.engine.deathwatch import end_families
from tidemill.engine.frames import Wire
from tidemill.engine.settings import WorkerSettings
from tidemill.ids import new_id

_log = logging.getLogger("tidemill.worker")

_LAST_WORDS = (
    1.0  # seconds between the end of a conversation and the end of the process, and the other way round
)
_SEND_LIMIT = struct.pack("@ll", 1, 0)  # seconds and microseconds
_PRIVATE = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
)  # the service manager speaks with the supervisor alone


class Phase(StrEnum):
    """Where a runner is in its life."""

    STARTING = "starting"  #: it imports the app
    JOINING = "joining"  #: it said hello and waits to be registered
    WORKING = "working"
    DRAINING = "draining"  #: it finishes what it holds and claims nothing more
    STOPPING = "stopping"
    LOST = "lost"  #: its lease ran out: it stops what it runs and writes nothing
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Said:
    """A runner sent a message."""

    runner: RunnerProcess
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Exited:
    """A runner's process ended, with its exit code, or minus the signal that killed it."""

    runner: RunnerProcess
    code: int


Emit = Callable[[Said | Exited], None]


class RunnerProcess:
    """A started process. ``worker`` is its id in the store, new for every process; all attributes are the supervisor's.

    Two threads watch it: one reads what it says, one waits for its end. They only ``emit``.
    """

    def __init__(self, seat: int, command: Sequence[str], emit: Emit, clock: Clock) -> None:
        self.seat = seat
        self.worker: UUID = new_id()
        self.phase = Phase.STARTING
        self.ready = False
        self.stats: Mapping[str, Any] = {}
        self.failure: str | None = None  #: why it could not import the app
        self.asked = False  #: it was told to end, so its end is no surprise
        self.kill_at: float | None = None
        self.killed = False  #: because its time was up
        self.silence_told = False
        self.done = False  #: it said that it holds nothing any more
        self._clock, self._emit = clock, emit
        self.started_at = self.spoke_at = clock.monotonic()
        ours, theirs = socket.socketpair()
        # A halted process reads nothing; whoever tells it something must not be halted with it.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_LIMIT)
        environment = {name: value for name, value in os.environ.items() if name not in _PRIVATE}
        tied, self._life = os.pipe()  # closed by the kernel when we die, however we die
        words = ["--fd", str(theirs.fileno()), "--life", str(tied), "--parent", str(os.getpid())]
        try:
            # A group of its own: Ctrl-C in a terminal is for the supervisor, and a kill takes the runner's children along.
            self._process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                [*command, *words],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), tied),
                process_group=0,
                env=environment,
            )
        except OSError:
            ours.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(tied)
        self.pid = self._process.pid
        self._socket = ours
        self._wire: Wire | None = Wire(ours)
        self._ended, self._reaping = threading.Event(), threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"tidemill-hear-{seat}", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name=f"tidemill-wait-{seat}", daemon=True)
        self._reader.start()
        self._waiter.start()

    def __str__(self) -> str:
        return f"runner {self.seat} (pid {self.pid})"

    # What it says ----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        wire = self._wire
        assert wire is not None
        with contextlib.suppress(OSError, ValueError):
            while (message := wire.receive()) is not None:
                self._emit(Said(self, message))
        # Who does not speak any more cannot be told to stop: it ends now, or is ended.
        if not self._ended.wait(_LAST_WORDS):
            self.kill()

    def _wait(self) -> None:
        """The only place where the process is reaped: until then its pid and its group cannot be somebody else's."""
        if hasattr(os, "waitid"):
            end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            if end is not None and (end.si_code != os.CLD_EXITED or end.si_status != 0):
                end_families([self.pid])  # what it started does not outlive its death
        else:
            self._process.wait()
        with self._reaping:
            self._ended.set()
            code = self._process.wait()
        self._reader.join(_LAST_WORDS)  # what it said last comes before its end
        self._emit(Exited(self, code))

    # What it is told -------------------------------------------------------------------------------------------------

    def tell(self, kind: str, **facts: object) -> bool:
        """Send a message; False if it cannot be reached any more, which its end will explain."""
        if self._wire is None:
            return False
        try:
            self._wire.send({"kind": kind, **facts})
        except (OSError, ValueError):
            self._wire = None  # half a message may have gone out
            return False
        return True

    def kill(self) -> None:
        """End it and all it started at once."""
        with self._reaping:
            if not self._ended.is_set():
                end_families([self.pid])

    def close(self) -> None:
        """It is gone; let go of the conversation."""
        self.phase, self._wire = Phase.GONE, None
        self._socket.close()
        life, self._life = self._life, -1
        if life >= 0:
            os.close(life)

    # What can be seen ------------------------------------------------------------------------------------------------

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return self._clock.monotonic() - self.started_at

    @property
    def silence(self) -> float:
        """Seconds since it last said anything."""
        return self._clock.monotonic() - self.spoke_at

    def memory(self) -> int | None:
        """Bytes of resident memory; None where the system does not say."""
        return resident_memory(self.pid)

    def is_stopped(self) -> bool:
        """Whether somebody halted the process (SIGSTOP, a debugger)."""
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False


def resident_memory(pid: int) -> int | None:
    """Bytes of resident memory of a process; None where the system does not say."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def settings_to_data(settings: WorkerSettings) -> dict[str, object]:
    """Settings as they are sent to a runner; ``read_settings`` reads them."""
    facts: dict[str, object] = {}
    for name in WorkerSettings.__dataclass_fields__:
        value = getattr(settings, name)
        facts[name] = value.total_seconds() if isinstance(value, timedelta) else value
    return facts


def runner_command(app: str, *, log_level: str = "info", log_json: bool = False) -> list[str]:
    """How a runner is started, but for the number of its socket and its parent."""
    words = [sys.executable, "-m", "tidemill.engine.process", "--app", app, "--log-level", log_level]
    return [*words, "--log-json"] if log_json else words


class Backoff:
    """How long to wait before the next start: twice as long after each short life, from the beginning after a long one.

    >>> backoff = Backoff()
    >>> [backoff.after(lived=0.0) for _ in range(3)], backoff.after(lived=3600.0)
    ([0.1, 0.2, 0.4], 0.1)
    """

    def __init__(self, first: float = 0.1, longest: float = 30.0, long_life: float = 60.0) -> None:
        self._first, self._longest, self._long_life = first, longest, long_life
        self.deaths = 0  #: in a row

    def after(self, lived: float) -> float:
        """Seconds to wait after a process that lived so long."""
        self.deaths = 1 if lived >= self._long_life else self.deaths + 1
        return min(self._first * 2.0 ** (min(self.deaths, 64) - 1), self._longest)
