"""Where this is: the machine, in a name that outlives processes, which queues are its own, and which release of Tidemill."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemill.domain.firing import NODE_QUEUE
from tidemill.domain.payload import clip
from tidemill.tasks.options import check_name

VARIABLE = "TIDEMILL_NODE"
"""The environment's word for the name, where machines cannot be told apart otherwise (copies of one image)."""

_LONGEST = 200


def machine_name() -> str:
    """A name that this machine keeps: what ``TIDEMILL_NODE`` says, its id, or its host name where it has none."""
    said = os.environ.get(VARIABLE, "").strip()
    if said:
        check_name("node", said)
        return said
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or host_name()
    except (OSError, UnicodeDecodeError):
        return host_name()


def host_name() -> str:
    """What this machine is called; a system may answer with bytes that are no text, and no table holds those."""
    return clip(socket.gethostname(), _LONGEST)


def release_here() -> str:
    """The release of Tidemill that is installed; empty where it runs without being installed."""
    try:
        return version("tidemill")
    except PackageNotFoundError:
        return ""


def own_queue(node: str) -> str:
    """The queue of jobs that only this node may run."""
    return NODE_QUEUE + node


def serves(queue: str, node: str) -> bool:
    """Whether workers of this node may take from a queue: never from another node's own."""
    return not queue.startswith(NODE_QUEUE) or queue == own_queue(node)


def concerns(topic: str, queues: Collection[str] | None, node: str) -> bool:
    """Whether this wake-up tells of work that a worker on this node, with these queues, may take."""
    if not topic.startswith("ready:"):
        return False
    queue = topic.removeprefix("ready:")
    return serves(queue, node) and (queues is None or queue in queues or queue == own_queue(node))
