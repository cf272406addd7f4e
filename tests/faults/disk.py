"""A small disk that can be full: a file system in memory whose size is lowered to what is used, and given back.

Writing beyond it fails as on any full disk, and SQLite says so (``SQLITE_FULL``). Mounting needs a namespace of mounts of one's
own: ``in_own_namespace`` starts the program again in one, which also sees to it that nothing stays mounted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

INSIDE = "FAULTS_OWN_MOUNTS"
"""Environment variable: we were started again, and may mount."""

_ROOMY = 2 << 30
_LEFT = 16 << 10
"""Bytes that a full disk still has."""


def in_own_namespace() -> bool:
    """Become the same program in a namespace of mounts of its own; False where that is not possible."""
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
    """A file system of its own at a folder that exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        _mount("-t", "tmpfs", "-o", f"size={_ROOMY}", "none", str(folder))

    def fill(self) -> None:
        """Leave no room for more than a few pages."""
        for attempt in range(10):  # it may have grown before it could be told how large it may be
            found = os.statvfs(self.folder)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            try:
                _mount("-o", f"remount,size={used + _LEFT * (attempt + 1)}", str(self.folder))
            except OSError:
                if attempt == 9:
                    raise
            else:
                return

    def free(self) -> None:
        """There is room again."""
        _mount("-o", f"remount,size={_ROOMY}", str(self.folder))

    def close(self) -> None:
        """Let go of it with all that is on it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"mount {' '.join(words)}: {done.stderr.strip()}")
