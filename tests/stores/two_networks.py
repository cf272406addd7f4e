"""Two network namespaces joined by a virtual cable that can be disconnected.

While the cable is disconnected, packets are lost without an error. The network of the machine is not changed.
Creating network namespaces needs Linux, root and the program ``ip``.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SERVER_ADDRESS = "10.213.7.1"
CLIENT_ADDRESS = "10.213.7.2"
_NEW_NETWORK = 0x40000000
_PATIENCE = 120.0


def networks_are_possible() -> bool:
    """Return whether the prerequisites are met; creating a namespace may still fail."""
    return (
        hasattr(os, "geteuid")
        and os.geteuid() == 0
        and shutil.which("ip") is not None
        and Path("/proc/self/ns/net").exists()
    )


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Network:
    """A network namespace with one thread; sockets and processes of that thread belong to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        _ip("netns", "add", name)
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/run/netns", self.name).open() as file:
            if libc.setns(file.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), "cannot enter the network")

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start work in the namespace."""
        return self._thread.submit(work)

    def run(self, work: Callable[[], T]) -> T:
        """Run work in the namespace, and return its result."""
        return self.submit(work).result(timeout=_PATIENCE)

    def close(self) -> None:
        self._thread.shutdown()
        _ip("netns", "del", self.name)


class Networks:
    """The client's network, the server's network, and the cable."""

    def __init__(self, client: Network, server: Network) -> None:
        self.client, self.server = client, server

    def disconnect(self) -> None:
        _ip("-n", self.server.name, "link", "set", "cable", "down")

    def reconnect(self) -> None:
        _ip("-n", self.server.name, "link", "set", "cable", "up")


@contextmanager
def two_networks() -> Iterator[Networks]:
    """Create two networks for a ``with`` block, or raise ``OSError``."""
    with ExitStack() as stack:
        networks = []
        for name in ("client", "server"):
            network = Network(f"tidemill-{name}-{os.getpid()}")
            stack.callback(network.close)
            networks.append(network)
        client, server = networks
        _ip(
            "-n",
            client.name,
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            server.name,
        )
        for network, address in ((client, CLIENT_ADDRESS), (server, SERVER_ADDRESS)):
            _ip("-n", network.name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", network.name, "link", "set", "lo", "up")
            _ip("-n", network.name, "link", "set", "cable", "up")
        yield Networks(client, server)
