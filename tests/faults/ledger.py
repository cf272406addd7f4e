"""The ledger of a fault run: a record of what happened, kept outside the store.

Handlers append to one file, producers to another. A line is one write with O_APPEND and is on disk before the writer continues.
Only the run itself reads the files.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tidemill import Context

WHERE = "FAULTS_LEDGER"
"""Environment variable: the file that handlers write to."""

BEGIN, END, TICK = "B", "E", "T"


class Line(NamedTuple):
    """A handler's entry. ``at`` is a reading of the monotonic clock, which all processes of a machine share."""

    kind: str
    job: UUID
    token: int
    attempt: int
    pid: int
    parent: int
    at: float

    @property
    def run(self) -> tuple[UUID, int]:
        """Return the execution that the line belongs to."""
        return self.job, self.token


def note(kind: str, ctx: Context) -> float:
    """Write a line and return its time; ticks are frequent and are not synced to disk."""
    job, at = ctx.job, time.monotonic()
    words = (kind, job.id, job.token, job.attempt, os.getpid(), os.getppid(), repr(at))
    _append(Path(os.environ[WHERE]), " ".join(map(str, words)) + "\n", sync=kind != TICK)
    return at


def _append(path: Path, text: str, *, sync: bool) -> None:
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, text.encode())
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


class Ledger:
    """Both files, as the run reads and writes them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "effects"
        self._accepted = folder / "accepted"
        self._offset = 0
        self._lines: list[Line] = []

    def accept(self, ids: Iterable[UUID]) -> None:
        """Record that these jobs were accepted: the enqueue call has returned."""
        _append(self._accepted, "".join(f"{id}\n" for id in ids), sync=True)

    def accepted(self) -> list[UUID]:
        """Return every accepted job, in order."""
        words = self._accepted.read_text().split() if self._accepted.exists() else []
        return [UUID(word) for word in words]

    def lines(self) -> list[Line]:
        """Return all lines written so far, in order."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offset += len(whole)
            self._lines += map(_read, whole.decode().splitlines())
        return self._lines

    def of(self, kind: str, jobs: Iterable[UUID] | None = None) -> list[Line]:
        """Return the lines of one kind, of these jobs or of all jobs."""
        wanted = None if jobs is None else set(jobs)
        return [line for line in self.lines() if line.kind == kind and (wanted is None or line.job in wanted)]


def _read(text: str) -> Line:
    kind, job, token, attempt, pid, parent, at = text.split()
    return Line(kind, UUID(job), int(token), int(attempt), int(pid), int(parent), float(at))
