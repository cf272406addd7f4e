"""Slots in which job bodies record their starts, readable by other processes.

Each process that runs jobs owns a file of 24 bytes, named by its pid and mapped into memory: the first start, the number of started
jobs and the last start. Jobs that do some work add 16 bytes: the number of ended jobs and the last end. Times are monotonic
nanoseconds, which all processes of a machine share. The peers' programs write the same.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import time
from pathlib import Path
from typing import NamedTuple

_FORM = struct.Struct("qqq")
_ENDS = struct.Struct("qq")
_LOOKS = 5


class Slot:
    """The slot of this process. Only one thread may record."""

    def __init__(self, folder: Path, starts: Path | None) -> None:
        with (folder / str(os.getpid())).open("w+b") as file:
            file.truncate(_FORM.size)
            self._words = memoryview(mmap.mmap(file.fileno(), _FORM.size)).cast("q")
        self._starts = None if starts is None else starts.open("ab", buffering=0)

    def note(self, number: int) -> None:
        """Record the start of a job."""
        now = time.monotonic_ns()
        if self._starts is not None:
            self._starts.write(b"%d %d\n" % (number, now))
        # Written field by field, the count last: a reader of the count also sees the rest. Packing would clear the slot for a moment.
        words = self._words
        if not words[0]:
            words[0] = now
        words[2] = now
        words[1] += 1

    def close(self) -> None:
        """Close the slot; no further job starts."""
        self._words.release()
        if self._starts is not None:
            self._starts.close()


class Seen(NamedTuple):
    """All slots together: the first start, the number of starts, the last start, and the processes."""

    first: int
    begun: int
    last: int
    pids: tuple[int, ...]
    stagger: int = 0  #: nanoseconds by which the last process began later than the first
    ended: int = 0  #: ended jobs, if the jobs record their ends
    last_end: int = 0


def clear(folder: Path) -> None:
    """Remove all slots."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def look(folder: Path) -> Seen:
    """Read all slots."""
    rows, pids = [], []
    for path in folder.iterdir():
        if (row := _read(path)) is not None:
            rows.append(row)
            pids.append(int(path.name))
    if not rows:
        return Seen(0, 0, 0, ())
    firsts, counts, lasts, ended, ends = zip(*rows, strict=True)
    stagger = max(firsts) - min(firsts)
    return Seen(min(firsts), sum(counts), max(lasts), tuple(pids), stagger, sum(ended), max(ends))


def _read(path: Path) -> tuple[int, int, int, int, int] | None:
    """Read one slot; None if no job has started. A peer may be writing, so an incomplete row is read again."""
    for _ in range(_LOOKS):
        content = path.read_bytes()
        if len(content) >= _FORM.size:
            first, begun, last = _FORM.unpack_from(content)
            if begun and 0 < first <= last:
                wide = len(content) >= _FORM.size + _ENDS.size
                ended, end = _ENDS.unpack_from(content, _FORM.size) if wide else (0, 0)
                return first, begun, last, ended, end
    return None
