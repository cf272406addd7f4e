"""A small file system in memory that can be filled up and freed.

Writes beyond its size fail as on any full disk, and SQLite reports ``SQLITE_FULL``. Mounting needs a mount namespace:
``in_own_namespace`` re-executes the program in one, which also unmounts everything at exit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSIDE = "FAULTS_OWN_MOUNTS"
"""Environment variable: this process was re-executed and may mount."""

_ROOMY = 2 << 30
_LEFT = 16 << 10
"""Free bytes on a full disk."""


def in_own_namespace() -> bool:
    """Re-execute this program in its own mount namespace; return False where that is impossible."""
    if os.environ.get(INSIDE):
        return os.environ[INSIDE] == "yes"
    unshare = shutil.which("unshare")
    for words in (["--mount"], ["--user", "--map-root-user", "--mount"]):
        if unshare is None:
            break
        trial = [unshare, *words, "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
        if subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            os.environ[INSIDE] = "yes"
            sys.stdout.flush()
            os.execv(unshare, [unshare, *words, sys.executable, *sys.orig_argv[1:]])
    os.environ[INSIDE] = "no"
    return False


class Disk:
    """A separate file system mounted at an existing folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _mount("-t", "tmpfs", "-o", f"size={_ROOMY}", "none", str(folder))

    def fill(self) -> None:
        """Leave room for a few pages only."""
        # The files may grow between the measurement and the remount.
        for attempt in range(10):
            stats = os.statvfs(self.folder)
            used = (stats.f_blocks - stats.f_bfree) * stats.f_frsize
            try:
                _mount("-o", f"remount,size={used + _LEFT * (attempt + 1)}", str(self.folder))
            except OSError:
                if attempt == 9:
                    raise
            else:
                return

    def free(self) -> None:
        """Restore the full size."""
        _mount("-o", f"remount,size={_ROOMY}", str(self.folder))

    def close(self) -> None:
        """Unmount it and discard its contents."""
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"mount {' '.join(words)}: {done.stderr.strip()}")
