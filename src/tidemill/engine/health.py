"""The verdict on a worker's health, and the address on which it is reported.

``health_server`` serves it. It is a module of its own, because a worker without the endpoint needs no HTTP server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidemill.engine.runner.counters import Counters

LOOPBACK = "127.0.0.1"
IN_A_POD = "KUBERNETES_SERVICE_HOST"
"""Kubernetes sets this variable in every container."""


def default_host(environment: Mapping[str, str] = os.environ) -> str:
    """The address to answer probes on: loopback, or every address in a Kubernetes pod.

    The kubelet connects to the pod's address.

    >>> default_host({}), default_host({"KUBERNETES_SERVICE_HOST": ""})
    ('127.0.0.1', '127.0.0.1')
    """
    if not environment.get(IN_A_POD):
        return LOOPBACK
    return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104  (probes come from outside the pod)


def url_of(host: str, port: int) -> str:
    """The URL of an address.

    >>> url_of("127.0.0.1", 8081), url_of("::", 8081)
    ('http://127.0.0.1:8081', 'http://[::]:8081')
    """
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class HealthVerdict(NamedTuple):
    """The state of the worker. ``reasons`` tells why it is not alive or not ready; ``details`` are shown with it."""

    alive: bool
    ready: bool
    reasons: tuple[str, ...] = ()
    details: Mapping[str, object] = {}
    #: adds up the counters of its runners, for each store; the key of an app's only store is None
    counters: Callable[[], Mapping[str | None, Counters]] = dict
