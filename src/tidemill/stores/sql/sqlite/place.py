"""Where the file lies: whether a database can live there at all, and whether it is still the file that was opened."""

from __future__ import annotations

import os
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
"""File systems on which SQLite's shared memory or its locks do not hold between machines."""

_MOUNTS = Path("/proc/mounts")
_ESCAPES = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"))


def filesystem(mounts: str, path: str) -> str | None:
    """The kind of file system an absolute path is on, as a system's table of mounts tells; None where it does not.

    >>> filesystem("/dev/sda1 / ext4 rw 0 0\\nnas:/jobs /srv/jobs nfs4 rw 0 0", "/srv/jobs/a.db")
    'nfs4'
    """
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        point = words[1]
        for escape, character in _ESCAPES:
            point = point.replace(escape, character)
        within = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at the same point the later one hides the earlier.
        if within and (found is None or len(point) >= found[0]):
            found = (len(point), words[2])
    return None if found is None else found[1]


def refuse_network(path: str) -> None:
    """Raise if the file is, or would be, on a file system that other machines share."""
    try:
        mounts = _MOUNTS.read_text("utf-8", "replace")
    except OSError:
        return
    kind = filesystem(mounts, os.path.realpath(path))
    if kind in NETWORKED:
        raise StoreUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold and the file can be damaged; "
            "put it on a local disk or use PostgreSQL (to try it all the same: ?force=1)",
            path=path,
            filesystem=kind,
        )


def trouble(path: str) -> str | None:
    """Why a file cannot be opened for writing, as a sentence with what to do; None when nothing is seen to be wrong."""
    file = Path(path)
    folder = file.parent
    if file.is_dir():
        return f"{path} is a directory, not a database file; give a file's name, such as {path.rstrip('/')}/jobs.db"
    if not folder.exists():
        return f"the directory {folder} of {path} does not exist; create it: mkdir -p {folder}"
    if not folder.is_dir():
        return f"{folder} in {path} is not a directory; give another path"
    if file.exists():
        if not file.is_file():
            return f"{path} is not an ordinary file; give another path"
        if not os.access(file, os.R_OK | os.W_OK):
            return f"{path} may not be read and written by this user; give it the rights: chmod u+rw {path}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the directory {folder} may not be written by this user, and SQLite keeps its log beside {path}; give the rights"
    if hasattr(os, "statvfs") and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return (
            f"{path} is on a file system that is mounted read-only; mount it for writing or give another path"
        )
    return None


class Identity:
    """The file that was opened; a path may come to mean another one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = self._look()

    def _look(self) -> tuple[int, int] | None:
        try:
            found = Path(self._path).stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def check(self) -> None:
        """Raise if the path no longer leads to the file that is open."""
        found = self._look()
        if found == self._known:
            return
        what = "was deleted" if found is None else "was replaced by another file"
        raise StoreUnavailable(
            f"{self._path} {what} while it was open, so nothing more is written to it; restore the file or start anew "
            "(stop every process that uses it first)",
            path=self._path,
        )
