"""A supervised process that runs alongside the runners.

It is restarted with back-off when it dies, and stopped in an orderly way. It writes one line when it is up, or the
reason why it cannot start. It is a separate process because it may run the user's code, and because its failure must
not affect the supervisor's heartbeats.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tidemill.clock import Clock, SystemClock
from tidemill.engine.deathwatch import die_with_parent, end_families, end_in_words, tie_group
from tidemill.engine.supervisor.orphans import forget_child, register_child
from tidemill.engine.supervisor.runner_process import Backoff
from tidemill.engine.supervisor.terminal import refuse_halts

_log = logging.getLogger("tidemill.worker")

LONGEST = 5.0
"""Maximum seconds that a stop waits for the process. It has no job to finish."""

_MARGIN = 2.0
_FIRST_TRIES = 5  # failed first starts before it is given up
_WHOLE = 1 << 16  # maximum bytes of its message


class Sidecar:
    """Keeps ``command`` running.

    The command receives ``--life`` and ``--tell``: a pipe that is open as long as this process lives, and one to write
    a line of JSON to. ``whisper`` is written to its standard input. ``up`` is called with each first line, on a thread
    of this object. ``failed`` is called with the reason if a restart cannot help.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        up: Callable[[Mapping[str, Any]], None],
        failed: Callable[[str], None],
        keep: Collection[int] = (),
        whisper: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.name, self._command, self._keep, self._whisper = name, list(command), tuple(keep), whisper
        self._up, self._failed, self._clock = up, failed, clock or SystemClock()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._kill_at = float("inf")
        self._asked = False  # it was asked to end so that a new process replaces it
        self._thread = threading.Thread(target=self._live, name=f"tidemill-{name}", daemon=True)

    @property
    def pid(self) -> int | None:
        """The id of the current process."""
        with self._lock:
            return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and keep it running."""
        self._thread.start()

    def restart(self) -> None:
        """Replace the process, so that the new one loads the current code."""
        with self._lock:
            if self._process is not None and not self._stopping.is_set():
                self._asked = True
                self._process.terminate()

    def stop(self, grace: float) -> None:
        """End the process within the grace; return at once. If called again, the shorter time counts."""
        with self._lock:
            self._stopping.set()
            self._kill_at = min(self._kill_at, self._clock.monotonic() + min(grace, LONGEST) + _MARGIN)
            if self._process is not None:
                self._process.terminate()

    def close(self) -> None:
        """Wait until the process has ended, and kill it when it is overdue."""
        if self._thread.ident is None:
            return
        if not self._stopping.is_set():
            self.stop(LONGEST)
        while self._thread.is_alive():
            self._thread.join(max(0.0, min(0.1, self._kill_at - self._clock.monotonic())) or 0.1)
            if self._clock.monotonic() >= self._kill_at:
                with self._lock:
                    if self._process is not None and self._process.poll() is None:
                        _log.error(
                            "%s (pid %d) did not end in time and is killed", self.name, self._process.pid
                        )
                        end_families([self._process.pid])

    # The thread --------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        backoff, was_up, deaths = Backoff(), False, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            told, how = self._once()
            was_up = was_up or "up" in told
            if self._stopping.is_set():
                return
            with self._lock:
                asked, self._asked = self._asked, False
            if asked:
                _log.info("%s is replaced: code reload", self.name)
                continue
            if told.get("error") is not None:
                how = f"cannot work: {told['error']}"
            deaths += not was_up
            if not was_up and (told.get("error") is not None or deaths >= _FIRST_TRIES):
                self._failed(f"{self.name} {how}")
                return
            pause = backoff.after(self._clock.monotonic() - began)
            _log.error("%s %s; the next one starts in %g s", self.name, how, pause)
            self._stopping.wait(pause)

    def _once(self) -> tuple[Mapping[str, Any], str]:
        """Run the process once; return its first message, and how it ended."""
        tied, life = os.pipe()  # closed by the kernel when this process dies
        told, tell = os.pipe()
        words = ["--life", str(tied), "--tell", str(tell), "--parent", str(os.getpid())]
        try:
            with self._lock:
                if self._stopping.is_set():
                    return {}, "was not started"
                self._process = process = subprocess.Popen(  # noqa: S603  (our own interpreter and module)
                    [*self._command, *words],
                    stdin=subprocess.PIPE,
                    pass_fds=(tied, tell, *self._keep),
                    process_group=0,  # Ctrl-C in a terminal reaches only the supervisor
                )
                register_child(process.pid)
        except OSError as error:
            os.close(told)
            os.close(life)
            return {}, f"cannot be started: {error}"
        finally:
            os.close(tied)
            os.close(tell)
        try:
            with contextlib.suppress(BrokenPipeError):
                _whisper(process, self._whisper)
            data = _read(told)
            if data and "error" not in data:
                self._up({**data, "pid": process.pid})
                data = {**data, "up": True}
            code = process.wait()
            forget_child(process.pid)
            return data, end_in_words(code)
        finally:
            with self._lock:
                self._process = None
            os.close(told)
            os.close(life)


def _whisper(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    with process.stdin as line:
        line.write(text.encode())


def _read(pipe: int) -> dict[str, Any]:
    """Read the first line of JSON; empty if the pipe was closed without one."""
    text = b""
    while not text.endswith(b"\n") and len(text) < _WHOLE:
        part = os.read(pipe, _WHOLE)
        if not part:
            break
        text += part
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def say(pipe: int, data: Mapping[str, object]) -> None:
    """Write the one line of JSON. Called in the companion."""
    # The supervisor may have closed the other end.
    with contextlib.suppress(OSError), os.fdopen(pipe, "wb") as line:
        line.write(json.dumps(data).encode() + b"\n")


def tie(life: int, parent: int) -> None:
    """End with the supervisor, and do not be halted by its terminal. Called in the companion, on its main thread."""
    refuse_halts()
    os.set_inheritable(life, False)
    if not tie_group(life):
        die_with_parent(parent)
