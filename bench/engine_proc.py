"""Process families, processor time, memory, and the load of other processes.

Reads ``/proc``, so Linux only; nothing here starts or ends a process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def _stat(pid: int) -> list[str]:
    """Return the fields after the program's name, or an empty list if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def family(*pids: int) -> list[int]:
    """Return these processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    members, ahead = [], list(pids)
    while ahead:
        pid = ahead.pop()
        members.append(pid)
        ahead += children.get(pid, [])
    return members


def births(pids: Iterable[int]) -> dict[int, int]:
    """Return the start time of each of these processes that is alive; pid and start time together are unique."""
    return {pid: int(fields[19]) for pid in pids if (fields := _stat(pid)) and fields[0] not in "ZX"}


def parent(pid: int) -> int | None:
    """Return the parent of a process, or None if it is not on this machine."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def cpu_seconds(pids: Iterable[int], *, reaped: bool = False) -> float:
    """Return the processor time of processes, including their ended children if ``reaped``."""
    ticks = 0
    for pid in pids:
        if fields := _stat(pid):
            ticks += sum(map(int, fields[11 : 15 if reaped else 13]))
    return ticks / _TICK


def resident_mb(pids: Iterable[int]) -> float:
    """Return the resident memory of processes, in MiB."""
    pages = 0
    for pid in pids:
        if fields := _stat(pid):
            pages += int(fields[21])
    return pages * _PAGE / 2**20


class Others:
    """Measures how many cores other processes than ours and our database server use, until ``cores()``."""

    def __init__(self, server: int | None) -> None:
        self._ours = [os.getpid(), *([] if server is None else [server])]
        self._begun, self._busy, self._mine = time.monotonic(), _busy(), self._used()

    def _used(self) -> float:
        return cpu_seconds(family(*self._ours), reaped=True)

    def cores(self) -> float:
        """Return the cores used so far. Call it before killing processes: the time of their orphans is lost afterwards."""
        busy, mine = _busy() - self._busy, self._used() - self._mine
        return max(0.0, busy - mine) / (time.monotonic() - self._begun)


def _busy() -> float:
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle, waiting = fields[3], fields[4]
    return (sum(fields) - idle - waiting) / _TICK
