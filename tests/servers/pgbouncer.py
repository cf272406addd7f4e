"""A real PgBouncer in transaction mode in front of a test server."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.servers.processes import Launcher, ProcessGuard, ServiceMissing, end, free_port, listening


def find_pgbouncer() -> Path:
    """The program, or ``ServiceMissing``; also searches system folders that an ordinary user's PATH lacks."""
    folders = os.pathsep.join(
        [os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"]
    )
    found = shutil.which("pgbouncer", path=folders)
    if found is None:
        raise ServiceMissing("pgbouncer is not on PATH; install your system's pgbouncer package")
    return Path(found)


def pgbouncer_version(program: Path) -> str:
    """The version of the program, as "1.18.0"."""
    output = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\d+(?:\.\d+)+", output)
    return match.group() if match else "unknown"


@contextlib.contextmanager
def running_pgbouncer(server_url: str) -> Iterator[str]:
    """PgBouncer in front of the server of ``server_url`` for the duration of a ``with`` block; yields the URL through it."""
    program, launcher, port = find_pgbouncer(), Launcher(), free_port()
    server = urlsplit(server_url)
    home = Path(tempfile.mkdtemp(prefix="tm-"))
    launcher.give(home)
    target = {
        "host": server.hostname or "127.0.0.1",
        "port": str(server.port or 5432),
        "user": unquote(server.username or "postgres"),
        **({"password": unquote(server.password)} if server.password else {}),
    }
    config, log = home / "pgbouncer.ini", home / "log"
    config.write_text(
        f"""\
[databases]
* = {" ".join(f"{name}={_quoted(value)}" for name, value in target.items())}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pidfile = {home / "pid"}
auth_type = any
pool_mode = transaction
max_client_conn = 200
default_pool_size = 20
ignore_startup_parameters = extra_float_digits
"""
    )
    config.chmod(0o644)
    process = launcher.start([str(program), "-q", str(config)], log)
    guard = ProcessGuard("pgbouncer", home / "pid", [home])

    def close() -> None:
        end(process, signal.SIGINT, patience=5.0)
        guard.release()
        shutil.rmtree(home, ignore_errors=True)

    atexit.register(close)
    try:
        if not listening(port, process, 10.0):
            raise ServiceMissing(f"pgbouncer did not start: {log.read_text(errors='replace').strip()[-500:]}")
        yield f"postgresql://postgres@127.0.0.1:{port}{server.path}"
    finally:
        atexit.unregister(close)
        close()


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
