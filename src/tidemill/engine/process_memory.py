"""Memory use of processes and available memory, as reported by Linux."""

from __future__ import annotations

import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def resident_memory(pid: int) -> int | None:
    """Return the resident memory of a process in bytes, or None where the system does not report it."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, AttributeError, IndexError, ValueError):  # Windows has no os.sysconf
        return None


def available_memory() -> int | None:
    """Return the bytes still available: the lesser of the machine's free memory and what the control group allows."""
    found = [value for value in (_of_machine(), _of_group()) if value is not None]
    return min(found, default=None)


def room_for_another() -> bool:
    """Whether there is memory for another process like this one, plus as much again in reserve."""
    left, mine = available_memory(), resident_memory(os.getpid())
    return left is None or mine is None or left >= 2 * mine


def _of_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    return None


def _of_group() -> int | None:
    try:
        limit = int((_GROUP / "memory.max").read_text())  # "max" means no limit
        return max(0, limit - int((_GROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return None
