"""Handmade zone files, for two versions of a zone's rules."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path


def tzif(changes: Sequence[tuple[datetime, int]], first: int, rule: str) -> bytes:
    """Return a TZif file: the first offset in hours, the offset after each change, and a POSIX rule for later."""
    hours = sorted({first, *(offset for _, offset in changes)})
    kinds = b"".join(struct.pack(">lbb", offset * 3600, 0, 0) for offset in hours)
    seconds = [int(at.timestamp()) for at, _ in changes]
    numbers = [hours.index(offset) for _, offset in changes]
    # Readers use the first type before the first change; put the initial offset in front of everything.
    seconds.insert(0, -(2**40))
    numbers.insert(0, hours.index(first))
    head = b"TZif2" + bytes(15)
    empty = head + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lbb", 0, 0, 0) + b"UTC\0"
    counts = struct.pack(">6l", 0, 0, 0, len(seconds), len(hours), 4)
    body = struct.pack(f">{len(seconds)}q", *seconds) + bytes(numbers) + kinds + b"LCL\0"
    return empty + head + counts + body + f"\n{rule}\n".encode()


def write_zone(folder: Path, name: str, content: bytes) -> str:
    """Write a zone into a folder; return the folder for TZPATH."""
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return str(folder)
