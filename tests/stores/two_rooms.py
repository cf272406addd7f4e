"""Two networks of our own, joined by one wire that can be cut: what is sent then reaches nobody, and nobody says so.

The machine's own network is not touched. Making networks needs root and the program ``ip``, on Linux.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

FAR = "10.213.7.1"
NEAR = "10.213.7.2"
_NEW_NETWORK = 0x40000000
_PATIENCE = 120.0


def rooms_are_possible() -> bool:
    """Whether this is root on a Linux with ``ip``; whether networks can really be made, only making them shows."""
    return (
        hasattr(os, "geteuid")
        and os.geteuid() == 0
        and shutil.which("ip") is not None
        and Path("/proc/self/ns/net").exists()
    )


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Room:
    """A network, and one thread that lives in it; what that thread opens or starts belongs there."""

    def __init__(self, name: str) -> None:
        self.name = name
        _ip("netns", "add", name)
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/run/netns", self.name).open() as place:
            if libc.setns(place.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "cannot enter the network")

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Start some work there."""
        return self._thread.submit(work)

    def do(self, work: Callable[[], T]) -> T:
        """Do some work there."""
        return self.begin(work).result(timeout=_PATIENCE)

    def close(self) -> None:
        self._thread.shutdown()
        _ip("netns", "del", self.name)


class Rooms:
    """The near room, the far one, and the wire."""

    def __init__(self, near: Room, far: Room) -> None:
        self.near, self.far = near, far

    def cut(self) -> None:
        _ip("-n", self.far.name, "link", "set", "wire", "down")

    def mend(self) -> None:
        _ip("-n", self.far.name, "link", "set", "wire", "up")


@contextmanager
def two_rooms() -> Iterator[Rooms]:
    """Two rooms for the length of a ``with`` block, or ``OSError`` where they cannot be made."""
    with ExitStack() as stack:
        rooms = []
        for name in ("near", "far"):
            room = Room(f"tidemill-{name}-{os.getpid()}")
            stack.callback(room.close)
            rooms.append(room)
        near, far = rooms
        _ip("-n", near.name, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", far.name)
        for room, address in ((near, NEAR), (far, FAR)):
            _ip("-n", room.name, "address", "add", f"{address}/24", "dev", "wire")
            _ip("-n", room.name, "link", "set", "lo", "up")
            _ip("-n", room.name, "link", "set", "wire", "up")
        yield Rooms(near, far)
