"""Holds between the processes of one machine, as file locks.

A hold is a lock on an empty file next to the database.

The lock belongs to the open file, so the system releases it when the process ends, however it ends. A forked child would share it,
and closes its copy at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import threading
from pathlib import Path
from urllib.parse import quote

from tidemill.errors import BadSettings, StoreBusy, StoreUnavailable

_LOCKABLE = importlib.util.find_spec("fcntl") is not None
_LONGEST = 100  # maximum length of a name within a file name; longer ones are hashed
_TRIES = 100  # maximum tries to create a file that another process removes at the same time

Identity = tuple[int, int]


def lock_path(path: str, name: str) -> Path:
    """The file that is locked for a hold with this name.

    >>> lock_path("/srv/jobs.db", "duties").name
    'jobs.db-duties.lock'
    """
    word = quote(name, safe="")
    if len(word) > _LONGEST:
        word = hashlib.sha256(word.encode()).hexdigest()
    return Path(f"{os.path.realpath(path)}-{word}.lock")


class FileLock:
    """A locked file."""

    def __init__(self, holds: FileLocks, path: Path, file: int) -> None:
        self.path = path
        self.file = file
        self._holds = holds
        self._identity = _identity(file)

    def held(self) -> bool:
        # If the file was removed, another process may have created and locked a new one.
        return self._holds.has(self) and _identity(self.path) == self._identity

    def release(self) -> None:
        self._holds.drop(self)


class FileLocks:
    """The holds of one store in this process. ``_turn`` prevents a fork between opening a file and recording it here."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        self._turn = threading.RLock()
        self._taken: set[FileLock] = set()

    def take(self, name: str) -> FileLock | None:
        """The lock with this name; None while it is held."""
        if not _LOCKABLE:
            raise BadSettings(
                f"this system has no file locks, so no lock can be held next to {self._path}; use coordination 'lease'"
            )
        with self._turn:
            if self._closed:
                raise StoreUnavailable(
                    f"the store of {self._path} was closed; open a new one", path=self._path
                )
            path = lock_path(self._path, name)
            file = _lock(path, self._path)
            if file is None:
                return None
            hold = FileLock(self, path, file)
            self._taken.add(hold)
            return hold

    def has(self, hold: FileLock) -> bool:
        """Whether this hold was not released; a fork has none."""
        return hold in self._taken

    def drop(self, hold: FileLock) -> None:
        """Release a file, and remove it while it is locked: a process that has opened it detects the removal."""
        import fcntl

        with self._turn:
            if hold not in self._taken:
                return
            with contextlib.suppress(OSError):
                if hold.held():
                    hold.path.unlink()
            self._taken.discard(hold)
            # Unlocked explicitly, because a program that is just being started may still share the file.
            with contextlib.suppress(OSError):
                fcntl.flock(hold.file, fcntl.LOCK_UN)
            os.close(hold.file)

    def close(self) -> None:
        """Release all holds permanently."""
        with self._turn:
            self._closed = True
            for hold in list(self._taken):
                self.drop(hold)

    def before_fork(self) -> None:
        self._turn.acquire()

    def after_fork_in_parent(self) -> None:
        self._turn.release()

    def after_fork_in_child(self) -> None:
        """Close the files: the locks belong to the parent, and only closing leaves them in place."""
        for hold in self._taken:
            os.close(hold.file)
        self._reset()


def _identity(file: int | Path) -> Identity | None:
    try:
        status = os.stat(file)  # noqa: PTH116  (also of a descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _lock(path: Path, database: str) -> int | None:
    """The descriptor of the locked file; None while another process holds it."""
    import fcntl

    flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        # Any user of the database may lock the file.
        mode = Path(database).stat().st_mode & 0o666
        for _ in range(_TRIES):
            file = os.open(path, flags, mode)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _identity(path) == _identity(file):
                    return file
            except BlockingIOError:
                os.close(file)
                return None
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # its holder has just released and removed it
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be locked ({error.strerror}); give this user permission, or use coordination 'lease'",
            path=str(path),
        ) from error
    raise StoreBusy(f"other processes keep locking and removing {path}; nothing was changed, try again")
