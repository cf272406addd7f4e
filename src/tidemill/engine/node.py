"""Which machine this is, in a name that outlives processes."""

from __future__ import annotations

import socket
from pathlib import Path


def machine_name() -> str:
    """A name that this machine keeps: its id, or its host name where it has none."""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or socket.gethostname()
    except (OSError, UnicodeDecodeError):
        return socket.gethostname()
