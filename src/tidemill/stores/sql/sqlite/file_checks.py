"""Checks of the database file: its location and its identity."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tidemill.errors import StoreUnavailable

NETWORKED = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "fuse.sshfs",
        "9p",
        "glusterfs",
        "fuse.glusterfs",
        "ceph",
        "gpfs",
        "lustre",
    }
)
"""File systems on which SQLite's shared memory or locks do not work between machines."""

_MOUNTS = Path("/proc/mounts")
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


def filesystem(mounts: str, path: str) -> str | None:
    """The file system type of an absolute path, from a table of mounts; None if unknown.

    >>> filesystem("/dev/sda1 / ext4 rw 0 0\\nnas:/jobs /srv/jobs nfs4 rw 0 0", "/srv/jobs/a.db")
    'nfs4'
    """
    mount: tuple[int, str] | None = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1]
        for escape, character in _ESCAPES:
            point = point.replace(escape, character)
        within = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at the same point the later one hides the earlier one.
        if within and (mount is None or len(point) >= mount[0]):
            mount = (len(point), words[2])
    return None if mount is None else mount[1]


def refuse_network(path: str) -> None:
    """Raise an error if the file is, or would be, on a network file system."""
    try:
        mounts = _MOUNTS.read_text("utf-8", "replace")
    except OSError:
        return
    kind = filesystem(mounts, os.path.realpath(path))
    if kind in NETWORKED:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not work and the file can be damaged; "
            "put it on a local disk or use PostgreSQL (to use it anyway: ?force=1)",
            path=path,
            filesystem=kind,
        )


def trouble(path: str) -> str | None:
    """Why a file cannot be opened for writing, with a remedy; None if no problem is found."""
    file = Path(path)
    folder = file.parent
    if file.is_dir():
        return f"{path} is a directory, not a database file; give a file name, such as {path.rstrip('/')}/jobs.db"
    if not folder.exists():
        return f"the directory {folder} of {path} does not exist; create it: mkdir -p {folder}"
    if not folder.is_dir():
        return f"{folder} in {path} is not a directory; give another path"
    if file.exists():
        if not file.is_file():
            return f"{path} is not a regular file; give another path"
        if not os.access(file, os.R_OK | os.W_OK):
            return f"{path} is not readable and writable for this user; change its permissions: chmod u+rw {path}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the directory {folder} is not writable for this user, and SQLite keeps its log next to {path}; change its permissions"
    if hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return (
            f"{path} is on a file system that is mounted read-only; mount it for writing or give another path"
        )
    return None


def create_private(path: str) -> None:
    """Create an empty file that only its owner can read and write, unless the file exists.

    SQLite gives its log and its shared memory the permissions of the database file.
    """
    target = os.path.realpath(path)
    if os.path.lexists(target):
        return
    with suppress(OSError):  # SQLite reports any problem
        try:
            # mknod needs no descriptor. Closing one would release the locks of every connection that this process has to the file.
            os.mknod(target, 0o600)
        except (AttributeError, PermissionError):
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


class FileIdentity:
    """The device and inode of an open file. While a connection is open, no other file can get the same inode."""

    __slots__ = ("_identity", "_path")

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116  (runs twice in every transaction, and Path.stat takes three times as long)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def holds(self) -> bool:
        """Whether the path still leads to the file."""
        return self._look() == self._identity

    def check(self, *, written: bool = False) -> None:
        """Raise an error if the path no longer leads to the file. ``written``: a transaction was just committed to it."""
        identity = self._look()
        if identity == self._identity:
            return
        what = "was deleted or moved away" if identity is None else "was replaced by another file"
        last = "; the last change may be in the old file only" if written else ""
        advice = (
            "put the file back"
            if identity is None
            else "restart this process to use the new file, or put the old one back"
        )
        raise StoreUnavailable(
            f"{self._path} {what} while it was open, so this process no longer reads or writes it{last}; {advice}",
            path=self._path,
        )
