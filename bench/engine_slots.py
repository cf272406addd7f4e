"""Where job bodies note that they began, so that a drain is seen from outside without asking anybody.

Each process that runs jobs owns a file of 24 bytes, named by its pid and mapped into memory: the first start, the jobs begun and
the last start; times are monotonic nanoseconds, which all processes of a machine share. The peers' programs write the same.
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
_LOOKS = 5


class Slot:
    """This process's slot. Only one thread may note."""

    def __init__(self, folder: Path, starts: Path | None) -> None:
        with (folder / str(os.getpid())).open("w+b") as file:
            file.truncate(_FORM.size)
            self._words = memoryview(mmap.mmap(file.fileno(), _FORM.size)).cast("q")
        self._starts = None if starts is None else starts.open("ab", buffering=0)

    def note(self, number: int) -> None:
        """A job begins."""
        now = time.monotonic_ns()
        if self._starts is not None:
            self._starts.write(b"%d %d\n" % (number, now))
        # Word by word, the count last: whoever sees it sees the rest (packing would clear all of it for a moment).
        words = self._words
        if not words[0]:
            words[0] = now
        words[2] = now
        words[1] += 1

    def close(self) -> None:
        """No job will begin any more."""
        self._words.release()
        if self._starts is not None:
            self._starts.close()


class Seen(NamedTuple):
    """All slots together: when the first job began, how many have, when the last did, and in which processes."""

    first: int
    begun: int
    last: int
    pids: tuple[int, ...]
    stagger: int = 0  #: nanoseconds by which the last process began later than the first


def clear(folder: Path) -> None:
    """No process has begun a job."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def look(folder: Path) -> Seen:
    """What the slots say now."""
    rows, pids = [], []
    for path in folder.iterdir():
        if (row := _read(path)) is not None:
            rows.append(row)
            pids.append(int(path.name))
    if not rows:
        return Seen(0, 0, 0, ())
    firsts, counts, lasts = zip(*rows, strict=True)
    return Seen(min(firsts), sum(counts), max(lasts), tuple(pids), max(firsts) - min(firsts))


def _read(path: Path) -> tuple[int, int, int] | None:
    """One slot; None where no job has begun. A peer may be in the middle of writing, so half a row is read again."""
    for _ in range(_LOOKS):
        content = path.read_bytes()
        if len(content) >= _FORM.size:
            first, begun, last = _FORM.unpack_from(content)
            if begun and 0 < first <= last:
                return first, begun, last
    return None
