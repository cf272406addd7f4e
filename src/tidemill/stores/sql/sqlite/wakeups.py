"""Wake-ups between processes on one machine, over datagram sockets.

Each listener has a socket, and each message is sent to all of them. The sockets of a database are in a separate folder, whose name is
derived from the file's real path. A listener that cannot be reached this way (another mount namespace, another user, a system without
such sockets) still notices a little later that the file has changed: then the topic is ``change``.
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
from tidemill.stores.wakeup_messages import CHANGE

LARGEST = 4096
_LOOK = 0.5  # seconds between two checks of the file by a listener with a socket
_LOOK_ALONE = 0.05  # and by a listener without one
_PATH_LIMIT = 100
_QUEUE = Path("/proc/sys/net/unix/max_dgram_qlen")
_FEW = 10  # assumed socket queue length if the system does not report it
_AF_UNIX: int | None = getattr(socket, "AF_UNIX", None)


def folder_of(path: str) -> Path:
    """The folder of this database's sockets."""
    name = hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:16]
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    return Path(tempfile.gettempdir()) / f"tidemill-{user}-{name}"


def payloads(topics: Iterable[str], largest: int = LARGEST) -> Iterator[bytes]:
    """The topics in as few JSON messages as possible, none too large; a topic that is too large by itself becomes ``change``."""
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
    """Send the topics to every listener without waiting, and remove the sockets of dead ones."""
    folder = folder_of(path)
    if _AF_UNIX is None or not _is_ours(folder):
        return
    messages = list(payloads(topics))
    with socket.socket(_AF_UNIX, socket.SOCK_DGRAM) as out:
        out.setblocking(False)
        for address in folder.iterdir():
            for message in messages:
                try:
                    out.sendto(message, str(address))
                except ConnectionRefusedError:
                    address.unlink(missing_ok=True)
                    break
                except OSError:  # full or just closed: the listener is awake or gone
                    break


class SqliteListener:
    """A listener. ``version`` returns a number that changes with every write to the file, or None if it is not available."""

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
                    self._moved(0)  # the change need not be reported a second time
                    return heard
                if self._clock.monotonic() >= ends:
                    break
        return frozenset()

    def _listen(self, seconds: float) -> frozenset[str]:
        """The topics that arrive at the socket within this time. If the socket's queue was full, messages may have been dropped:
        then ``change`` stands for their topics.
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
            seconds = 0.0  # wait only for the first message
        return frozenset(heard)

    def _moved(self, after: float) -> bool:
        """Whether the file was written since the last check; checks at most once per this many seconds."""
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
                out.sendto(b"", str(self._address))  # wakes a waiting thread
        with self._waiting:
            if self._socket is not None:
                self._socket.close()
            if self._address is not None and self._owner == os.getpid():
                self._address.unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self._address.parent.rmdir()  # fails while there are other listeners
        self._forget(self)


def _bind(path: str) -> tuple[Path | None, socket.socket | None]:
    """A new socket in the database's folder; None if that is not possible."""
    if _AF_UNIX is None:
        return None, None
    folder = folder_of(path)
    for _ in range(10):  # the folder may be removed between its creation and the bind
        address = folder / f"{os.getpid():x}-{os.urandom(4).hex()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        if len(os.fsencode(address)) >= _PATH_LIMIT or not _is_ours(folder):
            return None, None
        listener = socket.socket(_AF_UNIX, socket.SOCK_DGRAM)
        try:
            listener.bind(str(address))
        except FileNotFoundError:
            listener.close()
            continue
        except OSError:
            listener.close()
            break
        listener.setblocking(False)
        return address, listener
    return None, None


def _room() -> int:
    """The number of messages that the system queues per socket."""
    try:
        return int(_QUEUE.read_text("ascii"))
    except (OSError, ValueError):
        return _FEW


def _is_ours(folder: Path) -> bool:
    """Whether the path is a real folder of this user, which no other user may write to."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    mine = not hasattr(os, "geteuid") or status.st_uid == os.geteuid()
    return stat.S_ISDIR(status.st_mode) and mine and not status.st_mode & 0o022
