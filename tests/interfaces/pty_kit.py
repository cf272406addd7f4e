"""A program on a pseudo-terminal."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from tidemill.clock import SystemClock

pty = pytest.importorskip("pty")
PATIENCE = 60.0


class Terminal:
    """A program on a pseudo-terminal, with its recorded output."""

    def __init__(self, process: subprocess.Popen[bytes], file: int) -> None:
        self.process, self._file, self.said = process, file, b""

    def until(self, words: bytes) -> None:
        """Wait for these words; raise ``EOFError`` if the program ends first."""
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE
        while words not in self.said:
            left = deadline - clock.monotonic()
            assert left > 0, self.said
            if select.select([self._file], [], [], left)[0]:
                self.said += self._read()

    def _read(self) -> bytes:
        try:
            found = os.read(self._file, 65536)
        except OSError:  # Linux reports a closed terminal as an error, other systems as empty data
            found = b""
        if not found:
            raise EOFError
        return found

    def forget(self) -> None:
        self.said = b""

    def type(self, keys: bytes) -> None:
        os.write(self._file, keys)

    def ended(self) -> int:
        """Wait for the end and return the exit code; keep reading so that the program does not block on output."""
        with pytest.raises(EOFError):
            self.until(b"what nobody says")
        return self.process.wait(PATIENCE)


@contextmanager
def on_terminal(
    words: Sequence[str], term: str = "xterm", more: Mapping[str, str] | None = None
) -> Iterator[Terminal]:
    """Run a program on a terminal of this type; kill it at the end if it still runs."""
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    ours, its = pty.openpty()
    process = subprocess.Popen(
        words, stdin=its, stdout=its, stderr=its, start_new_session=True,
        env={**env, "TERM": term, "COLUMNS": "80", "LINES": "24", **(more or {})},
    )  # fmt: skip
    os.close(its)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
