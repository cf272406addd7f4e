"""Real brokers for hubs and hands, and wires over them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.servers.processes import ServiceMissing
from tests.servers.rabbitmq import RabbitNode, running_rabbitmq
from tests.servers.restartable import RestartableServer, running_nats_server
from tests.services import go_without


@contextlib.contextmanager
def wire_url(kind: str, name: str = "tests") -> Iterator[str]:
    """The URL of a wire over a private broker of this kind; the test is skipped if there is none."""
    with contextlib.ExitStack() as stack:
        try:
            server: RestartableServer | RabbitNode
            if kind == "nats":
                server = stack.enter_context(running_nats_server())
            else:
                server = stack.enter_context(running_rabbitmq())
        except ServiceMissing as missing:
            go_without(kind, missing)
        yield f"{server.url.removesuffix('/%2F')}/{name}"
