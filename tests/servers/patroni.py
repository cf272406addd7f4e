"""Two PostgreSQL servers that Patroni manages, with etcd for its leader key.

``patroni`` comes from PyPI (``pip install 'patroni[etcd3]'``) and ``etcd`` from the system (Debian: ``etcd-server``).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.servers.postgres import SPEED, find_programs
from tests.servers.processes import Launcher, ProcessGuard, ServiceMissing, end, free_port, listening

from tidemill.clock import SystemClock

TTL = 20
"""Seconds after which Patroni gives the leader key of a lost node to another; its smallest value."""

_SECONDS = 120.0
_LOOPBACK = "127.0.0.1"


def find_patroni() -> tuple[str, str]:
    """The programs ``patroni`` and ``etcd``, or ``ServiceMissing``."""
    beside = Path(sys.executable).with_name("patroni")
    patroni = str(beside) if beside.exists() else shutil.which("patroni")
    etcd = shutil.which("etcd")
    if patroni is None:
        raise ServiceMissing("patroni was not found; run: pip install 'patroni[etcd3]'")
    if etcd is None:
        raise ServiceMissing("etcd was not found; on Debian, run: apt install etcd-server")
    return patroni, etcd


class Node:
    """One server with its Patroni."""

    def __init__(self, name: str, home: Path, launcher: Launcher, config: dict[str, Any]) -> None:
        self.name, self.port, self.api = name, free_port(), free_port()
        self.data = home / "data"
        self._home, self._launcher = home, launcher
        home.mkdir(mode=0o700)
        launcher.give(home)
        server = config["postgresql"] | {
            "listen": f"{_LOOPBACK}:{self.port}",
            "connect_address": f"{_LOOPBACK}:{self.port}",
            "data_dir": str(self.data),
            "pgpass": str(home / "pgpass"),
            "parameters": config["postgresql"]["parameters"] | {"unix_socket_directories": str(home)},
        }
        api = {"listen": f"{_LOOPBACK}:{self.api}", "connect_address": f"{_LOOPBACK}:{self.api}"}
        text = json.dumps(config | {"name": name, "restapi": api, "postgresql": server})
        (home / "patroni.yml").write_text(text)  # JSON is YAML
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: ProcessGuard | None = None

    def start(self, patroni: str) -> None:
        """Start Patroni, which starts the server."""
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self._home), "LANG": "C.UTF-8"}
        command = [patroni, str(self._home / "patroni.yml")]
        self._process = self._launcher.start(command, self.log, env=environment)
        (self._home / "patroni.pid").write_text(str(self._process.pid))
        if self._guard is None:
            self._guard = ProcessGuard("postgres", self.data / "postmaster.pid", [])

    @property
    def log(self) -> Path:
        """The file that Patroni and the server write to."""
        return self._home / "patroni.log"

    def status(self) -> dict[str, Any]:
        """The state of the server, from Patroni; empty while that does not answer."""
        return self.ask("patroni")

    def ask(self, path: str) -> dict[str, Any]:
        """The answer of Patroni's API; empty while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{_LOOPBACK}:{self.api}/{path}", timeout=2) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:  # 503 for a server that does not run
            with error:
                return dict(json.load(error))
        except (OSError, ValueError):
            return {}

    def kill_server(self) -> None:
        """Kill the server; its Patroni lives."""
        with contextlib.suppress(OSError, ValueError, ProcessLookupError):
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            if str(self.data) in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill Patroni and its server, as if the machine were lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.kill_server()

    def close(self) -> None:
        """Stop both."""
        if self._process is not None:
            end(self._process, signal.SIGTERM)
            self._process = None
        self.kill_server()
        if self._guard is not None:
            self._guard.release()


class PatroniPair:
    """A primary and a standby that Patroni promotes. ``synchronous`` sets its ``synchronous_mode``."""

    def __init__(self, *, synchronous: bool) -> None:
        self._patroni, etcd = find_patroni()
        self.synchronous = synchronous
        self._clock = SystemClock()
        self._home = Path(tempfile.mkdtemp(prefix="tm-patroni-"))
        self._launcher = Launcher()
        self._launcher.give(self._home)
        self._etcd_port, peer = free_port(), free_port()
        client = f"http://{_LOOPBACK}:{self._etcd_port}"
        own = f"http://{_LOOPBACK}:{peer}"
        words = [etcd, "--name=only", f"--data-dir={self._home / 'etcd'}", "--log-level=error"]
        words += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        words += [f"--listen-peer-urls={own}", f"--initial-advertise-peer-urls={own}"]
        words += [f"--initial-cluster=only={own}"]
        self._etcd_words = words
        self._etcd: subprocess.Popen[bytes] | None = None
        self.nodes = [Node(name, self._home / name, self._launcher, self._config()) for name in ("n1", "n2")]

    def _config(self) -> dict[str, Any]:
        dynamic = {
            "ttl": TTL,
            "loop_wait": 1,
            "retry_timeout": 3,
            "maximum_lag_on_failover": 64 * 1024 * 1024,
            "primary_start_timeout": 0,
            "synchronous_mode": self.synchronous,
            "postgresql": {"use_pg_rewind": False},
        }
        parameters = {**SPEED, "max_connections": "100", "wal_keep_size": "64MB"}
        parameters |= {"wal_retrieve_retry_interval": "200ms"}
        return {
            "scope": "tidemill",
            "etcd3": {"host": f"{_LOOPBACK}:{self._etcd_port}"},
            "bootstrap": {
                "dcs": dynamic,
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "no-sync"],
            },
            "postgresql": {
                "bin_dir": str(find_programs()),
                "parameters": parameters,
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator"},
                },
                # A lost primary comes back as a copy of the new one.
                "remove_data_directory_on_diverged_timelines": True,
                "remove_data_directory_on_rewind_failure": True,
            },
        }

    def open(self) -> None:
        """Start etcd and both nodes, and wait until the standby streams."""
        self._etcd = self._launcher.start(self._etcd_words, self._home / "etcd.log", env=dict(os.environ))
        if not listening(self._etcd_port, self._etcd, 30):
            raise ServiceMissing(f"etcd did not start: {(self._home / 'etcd.log').read_text()[-300:]}")
        for node in self.nodes:
            node.start(self._patroni)
        self.wait_until_whole()

    def url(self, database: str = "postgres", **options: str) -> str:
        """The URL of a database on both servers."""
        hosts = ",".join(f"{_LOOPBACK}:{node.port}" for node in self.nodes)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"postgresql://postgres@{hosts}/{database}" + (f"?{query}" if query else "")

    @property
    def primary(self) -> Node:
        """The node whose server takes writes."""
        for node in self.nodes:
            status = node.status()
            if status.get("role") in ("primary", "master") and status.get("state") == "running":
                return node
        raise ServiceMissing(f"no node is the primary: {self._words()}")

    def is_whole(self) -> bool:
        """Whether one node leads, and the other streams and may be promoted, which etcd knows in the synchronous mode."""
        wanted = "sync_standby" if self.synchronous else "replica"
        for node in self.nodes:
            members = [(row.get("role"), row.get("state")) for row in node.ask("cluster").get("members", [])]
            if sorted(members) != sorted([("leader", "running"), (wanted, "streaming")]):
                return False
        return True

    def wait_until_whole(self) -> None:
        """Wait until a failover is possible."""
        self._until(self.is_whole, "the standby streams")

    def restart(self, node: Node) -> None:
        """Start the Patroni of a killed node again."""
        node.start(self._patroni)

    def _until(self, true: Callable[[], bool], what: str) -> None:
        ends = self._clock.monotonic() + _SECONDS
        while not true():
            if self._clock.monotonic() > ends:
                raise ServiceMissing(f"not within {_SECONDS:g} s: {what}: {self._words()}")
            threading.Event().wait(0.2)

    def _words(self) -> str:
        logs = [node.log.read_text(errors="replace")[-600:] for node in self.nodes if node.log.exists()]
        return " / ".join(logs)

    def close(self) -> None:
        """Stop everything and remove the files."""
        for node in self.nodes:
            node.close()
        if self._etcd is not None:
            end(self._etcd, signal.SIGTERM)
        shutil.rmtree(self._home, ignore_errors=True)


@contextlib.contextmanager
def running_patroni(*, synchronous: bool) -> Iterator[PatroniPair]:
    """Two nodes under Patroni for the duration of a ``with`` block."""
    pair = PatroniPair(synchronous=synchronous)
    try:
        pair.open()
        yield pair
    finally:
        pair.close()
