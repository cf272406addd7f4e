"""A private RabbitMQ node that a test can kill and start again."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.servers.processes import HEIRS, Launcher, ProcessGuard, ServiceMissing, end, free_port, listening

from tidemill.clock import SystemClock

_HELLO = b"AMQP\x00\x00\x09\x01"
_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_PATIENCE = 180.0  # seconds; a node needs about ten on a quiet machine


def find_rabbitmq() -> list[str]:
    """The server's own script, or ``ServiceMissing``. The wrapper on PATH insists on a user of its own."""
    if _SCRIPT.exists() and shutil.which("epmd"):
        return [str(_SCRIPT)]
    raise ServiceMissing("rabbitmq-server was not found; on Debian, run: apt install rabbitmq-server")


class RabbitNode:
    """One node on loopback with its files in a folder. ``url`` stays the same when it starts again."""

    def __init__(self, home: Path) -> None:
        self._words, self._home = find_rabbitmq(), home
        self.port, distribution, epmd = free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self._launcher = Launcher()
        self._launcher.give(home)
        (home / "plugins").write_text("[].")
        (home / "rabbitmq.conf").write_text("log.file.level = warning\nloopback_users = none\n")
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"node{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            # One scheduler that sleeps when it has nothing to do.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }
        # Erlang would start this program as a daemon, and the tests could not stop it.
        self._names = self._launcher.start(
            ["epmd", "-port", str(epmd), "-address", "127.0.0.1"], home / "epmd.log", env=self._environment
        )
        self._node: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the node, and wait until it takes connections."""
        before, log = self._node, self._home / "out"
        self._node = self._launcher.start(self._words, log, env=self._environment)
        if before is not None:
            HEIRS[self._node.pid] = before.pid
        if not listening(self.port, self._node, _PATIENCE) or not self._answers():
            raise ServiceMissing(f"RabbitMQ did not start: {log.read_text(errors='replace').strip()[-500:]}")

    def _answers(self) -> bool:
        """Wait until the node begins the handshake: a node that starts accepts connections and closes them."""
        clock = SystemClock()
        until = clock.monotonic() + _PATIENCE
        while clock.monotonic() < until:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=5) as link,
            ):
                link.sendall(_HELLO)
                if link.recv(1):
                    return True
            threading.Event().wait(0.1)
        return False

    def kill(self) -> None:
        """Kill the node with everything that it has not written to disk."""
        assert self._node is not None
        os.killpg(self._node.pid, signal.SIGKILL)
        self._node.wait()

    def restart(self) -> None:
        """Kill the node and start it again."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End the node and its name server."""
        if self._node is not None and self._node.poll() is None:
            self.kill()
        end(self._names, signal.SIGTERM)


@contextlib.contextmanager
def running_rabbitmq() -> Iterator[RabbitNode]:
    """A private node for a ``with`` block."""
    find_rabbitmq()
    home = Path(tempfile.mkdtemp(prefix="tm-rabbit-"))
    guard = ProcessGuard("beam.smp", home / "pid", [home])
    node = RabbitNode(home)
    try:
        node.start()
        yield node
    finally:
        node.close()
        guard.release()
        shutil.rmtree(home, ignore_errors=True)
