"""Trial of a sandbox: ``python -m tidemill.engine.confinement.trial`` exits with 0 if this system can run one."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from pathlib import Path

from tidemill.engine.confinement.file_tree import tree_of
from tidemill.engine.confinement.sandbox import Rules, enter

_MEMORY = 512 * 1024**2
_DISK = 1024**2


def _holes() -> list[str]:
    """Holes of the sandbox that this process is in."""
    holes = []
    if len([name for name in os.listdir("/proc") if name.isdigit()]) > 2:  # noqa: PTH208
        holes.append("other processes are visible")
    if Path("/etc/hostname").exists() or Path("/var").exists():
        holes.append("files of the machine are visible")
    try:
        socket.socket(socket.AF_INET).close()
        holes.append("the network can be used")
    except OSError:
        pass
    return holes


def main() -> int:
    """Enter a sandbox and check it from the inside."""
    with tempfile.TemporaryDirectory(prefix="tidemill-sandbox-") as root:
        outer = os.fork()
        if outer:
            return min(abs(os.waitstatus_to_exitcode(os.waitpid(outer, 0)[1])), 255)
        enter(Rules(root, tree_of((), (), network=False), _MEMORY, None, 16, _DISK, network=False), ())
        if holes := _holes():
            os.write(2, f"the sandbox has holes: {', '.join(holes)}\n".encode())
        os._exit(1 if holes else 0)


if __name__ == "__main__":
    sys.exit(main())
