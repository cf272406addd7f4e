"""Wake-ups between processes on one machine, without polling: each listener has a socket, each call goes to all of them.

The sockets of a database lie in a folder of their own, whose name is made from the file's real path. Who cannot be reached
that way (another mount namespace, another user, a system without such sockets) still sees that the file has changed, a
little later: then the topic is ``change``.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import socket
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tidemill.clock import SystemClock

CHANGE = "change"
LARGEST = 4096
_LOOK = 0.5  # how often a listener with a socket looks at the file all the same
_LOOK_ALONE = 0.05  # how often one without does
_PATH_LIMIT = 100
_QUEUE = Path("/proc/sys/net/unix/max_dgram_qlen")
_FEW = 10  # messages that wait for a listener, where the system does not say how many it keeps
_AF_UNIX: int | None = getattr(socket, "AF_UNIX", None)


def folder_of(path: str) -> Path:
    """Where the sockets of this database are."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return Path(tempfile.gettempdir()) / f"tidemill-{user}-{name}"


def payloads(topics: Iterable[str], largest: int = LARGEST) -> Iterator[bytes]:
    """The topics as few messages of JSON, none larger than allowed; a topic that alone is too large is ``change``."""
    batch: list[str] = []
    size = 2
    for topic in sorted(topics):
        word = topic
        length = len(json.dumps(word)) + 2
        if length + 2 > largest:
            word, length = CHANGE, len(CHANGE) + 4
        if batch and size + length > largest:
            yield json.dumps(batch).encode()
            batch, size = [], 2
        batch.append(word)
        size += length
    if batch:
        yield json.dumps(batch).encode()


def broadcast(path: str, topics: Iterable[str]) -> None:
    """Send the topics to every listener there is; nobody is waited for, and the dead are buried."""
    folder = folder_of(path)
    if _AF_UNIX is None or not _is_ours(folder):
        return
    messages = list(payloads(topics))
    with socket.socket(_AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        for ear in folder.iterdir():
            for message in messages:
                try:
                    out.sendto(message, str(ear))
                except ConnectionRefusedError:
                    ear.unlink(missing_ok=True)
                    break
                except OSError:  # full, or just gone: it is awake or does not care
                    break


class SqliteListener:
    """One ear. ``version`` tells a number that moves when anybody writes to the file, or None when it cannot be asked."""

    def __init__(
        self, path: str, version: Callable[[], int | None], forget: Callable[[SqliteListener], None]
    ) -> None:
        self._version = version
        self._forget = forget
        self._closed = threading.Event()
        self._waiting = threading.Lock()
        self._owner = os.getpid()
        self._clock = SystemClock()
        self._address, self._socket = _bind(path)
        self._room = _room()
        self._step = _LOOK_ALONE if self._socket is None else _LOOK
        self._seen = version()
        self._looked = self._clock.monotonic()

    def wait(self, timeout: float) -> frozenset[str]:
        ends = self._clock.monotonic() + timeout
        with self._waiting:
            while not self._closed.is_set():
                heard = self._listen(max(0.0, min(self._step, ends - self._clock.monotonic())))
                if self._closed.is_set():
                    break
                if not heard and self._moved(self._step):
                    return frozenset({CHANGE})
                if heard:
                    self._moved(0)  # what was heard of need not be seen as well
                    return heard
                if self._clock.monotonic() >= ends:
                    break
        return frozenset()

    def _listen(self, seconds: float) -> frozenset[str]:
        """What arrives at the socket within this time. Where as many waited as there is room for, more may have been refused:
        then ``change`` stands for whatever these said.
        """
        if self._socket is None:
            self._closed.wait(seconds)
            return frozenset()
        heard: set[str] = set()
        for received in itertools.count():
            self._socket.settimeout(seconds)
            if received == self._room:
                heard.add(CHANGE)
            try:
                heard.update(json.loads(self._socket.recv(LARGEST) or "[]"))
            except (TimeoutError, BlockingIOError):
                break
            except (OSError, ValueError):
                heard.add(CHANGE)
                break
            seconds = 0.0  # the first was waited for; now what else is there
        return frozenset(heard)

    def _moved(self, after: float) -> bool:
        """Whether somebody has written since the last look; not looked at again before so many seconds."""
        if self._clock.monotonic() - self._looked < after:
            return False
        self._looked = self._clock.monotonic()
        version, before = self._version(), self._seen
        if version is None:
            return False
        self._seen = version
        return before is not None and version != before

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        if self._socket is not None and self._address is not None and self._owner == os.getpid():
            assert _AF_UNIX is not None
            with contextlib.suppress(OSError), socket.socket(_AF_UNIX, socket.SOCK_DGRAM) as out:
                out.setblocking(False)
                out.sendto(b"", str(self._address))  # whoever waits goes on at once
        with self._waiting:
            if self._socket is not None:
                self._socket.close()
            if self._address is not None and self._owner == os.getpid():
                self._address.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self._address.parent.rmdir()  # the last one out; fails while there are others
        self._forget(self)


def _bind(path: str) -> tuple[Path | None, socket.socket | None]:
    """A new socket in the database's folder; none where that cannot be."""
    if _AF_UNIX is None:
        return None, None
    folder = folder_of(path)
    for _ in range(10):  # the folder may go between making it and binding in it
        address = folder / f"{os.getpid():x}-{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        if len(os.fsencode(address)) >= _PATH_LIMIT or not _is_ours(folder):
            return None, None
        ear = socket.socket(_AF_UNIX, socket.SOCK_DGRAM)
        try:
            ear.bind(str(address))
        except FileNotFoundError:
            ear.close()
            continue
        except OSError:
            ear.close()
            break
        ear.setblocking(False)
        return address, ear
    return None, None


def _room() -> int:
    """How many messages the system keeps for whoever does not listen just now."""
    try:
        return int(_QUEUE.read_text("ascii"))
    except (OSError, ValueError):
        return _FEW


def _is_ours(folder: Path) -> bool:
    """Whether the folder is there, is a real folder, is ours, and nobody else may write in it."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    mine = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & 0o022
