"""Private RabbitMQ nodes that a test can kill and start again, alone or as a cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
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
    """One node on loopback with its files in a folder. ``url`` stays the same when it starts again.

    The nodes of a cluster share the name server of the first one, and a cookie.
    """

    def __init__(self, home: Path, first: RabbitNode | None = None) -> None:
        self._words, self._home = find_rabbitmq(), home
        self.port, distribution = free_port(), free_port()
        epmd = free_port() if first is None else first.epmd
        self.epmd: int = epmd
        self.name = f"node{self.port}@localhost"
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self._launcher = Launcher()
        self._launcher.give(home)
        (home / "plugins").write_text("[].")
        (home / "rabbitmq.conf").write_text("log.file.level = warning\nloopback_users = none\n")
        self._log = home / "out"
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
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
        self._names: subprocess.Popen[bytes] | None = None
        if first is None:
            # Erlang would start this program as a daemon, and the tests could not stop it.
            self._names = self._launcher.start(
                ["epmd", "-port", str(epmd), "-address", "127.0.0.1"],
                home / "epmd.log",
                env=self._environment,
            )
        self._node: subprocess.Popen[bytes] | None = None

    def join(self, nodes: Sequence[RabbitNode]) -> None:
        """Make the node part of a cluster at its first start."""
        lines = ["cluster_formation.peer_discovery_backend = classic_config"]
        lines += [
            f"cluster_formation.classic_config.nodes.{number} = {node.name}"
            for number, node in enumerate(nodes, 1)
        ]
        lines += ["cluster_formation.randomized_startup_delay_range.min = 0"]
        lines += ["cluster_formation.randomized_startup_delay_range.max = 1"]
        with (self._home / "rabbitmq.conf").open("a") as config:
            config.write("\n".join(lines) + "\n")
        cookie = self._home / ".erlang.cookie"
        cookie.write_text("TIDEMILLTESTS")
        cookie.chmod(0o400)
        self._launcher.give(cookie)

    def start(self) -> None:
        """Start the node, and wait until it takes connections."""
        before, log = self._node, self._log
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

    def members(self) -> int:
        """The number of running nodes in the cluster of this node."""
        answer = self._home / "members"
        question = "length(nodes()) + 1."
        words = [str(_SCRIPT.with_name("rabbitmqctl")), "--node", self.name, "--quiet", "eval", question]
        self._launcher.start(words, answer, env=self._environment).wait()
        lines = answer.read_text().split()
        return int(lines[-1]) if lines and lines[-1].isdecimal() else 0

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
        if self._names is not None:
            end(self._names, signal.SIGTERM)


class RabbitCluster:
    """Three nodes on loopback. ``restart`` kills one after the other, and the others hold its quorum queues."""

    def __init__(self, home: Path, size: int = 3) -> None:
        homes = [home / f"node-{number}" for number in range(size)]
        for place in homes:
            place.mkdir()
        first = RabbitNode(homes[0])
        self.nodes = [first, *(RabbitNode(place, first) for place in homes[1:])]
        for node in self.nodes:
            node.join(self.nodes)
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        self.url = f"amqp://guest:guest@{hosts}/%2F"
        self._turn = 0

    def start(self) -> None:
        """Start every node; the later ones join the first."""
        for node in self.nodes:
            node.start()
        if (members := self.nodes[0].members()) != len(self.nodes):
            raise ServiceMissing(f"{members} of {len(self.nodes)} RabbitMQ nodes formed a cluster")

    def restart(self) -> None:
        """Kill the next node and start it again."""
        self._turn += 1
        self.nodes[self._turn % len(self.nodes)].restart()

    def close(self) -> None:
        """End every node; the name server, which is the first one's, last."""
        for node in reversed(self.nodes):
            node.close()


@contextlib.contextmanager
def running_rabbitmq_cluster(size: int = 3) -> Iterator[RabbitCluster]:
    """A private cluster for a ``with`` block."""
    find_rabbitmq()
    home = Path(tempfile.mkdtemp(prefix="tm-rabbits-"))
    guards = [ProcessGuard("beam.smp", home / f"node-{number}" / "pid", [home]) for number in range(size)]
    cluster = RabbitCluster(home, size)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
        for guard in guards:
            guard.release()
        shutil.rmtree(home, ignore_errors=True)


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
