"""Identity of this node: machine name, own queues and Tidemill release."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from uuid import UUID

from tidemill.domain.bounds import check_name
from tidemill.domain.payload import clip
from tidemill.domain.schedule_fires import NODE_QUEUE
from tidemill.domain.schedules import runner_place

VARIABLE = "TIDEMILL_NODE"
"""Environment variable with the node name, for machines without distinct ids (copies of one image)."""

_LONGEST = 200


def machine_name() -> str:
    """Return a durable name of this machine: ``TIDEMILL_NODE``, else the machine id, else the host name."""
    name = os.environ.get(VARIABLE, "").strip()
    if name:
        check_name("node", name)
        return name
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip() or host_name()
    except (OSError, UnicodeDecodeError):
        return host_name()


def host_name() -> str:
    """Return the host name. Bytes that are not valid text are replaced, because no table can store them."""
    return clip(socket.gethostname(), _LONGEST)


def process_name() -> str:
    """Return the name of this process among the workers: host name and process id."""
    return f"{host_name()}-{os.getpid()}"


def release_here() -> str:
    """Return the installed release of Tidemill, or an empty string if it is not installed as a package."""
    # Imported here, because it costs `import tidemill` a tenth of its time.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tidemill")
    except PackageNotFoundError:
        return ""


def own_queue(node: str) -> str:
    """Return the queue of jobs that only this node, or this runner, may run."""
    return NODE_QUEUE + node


def own_queues(node: str, worker: UUID | None) -> tuple[str, ...]:
    """Return the queue of this node and that of this runner process."""
    return (own_queue(node),) if worker is None else (own_queue(node), own_queue(runner_place(node, worker)))


def serves(queue: str, node: str, worker: UUID | None = None) -> bool:
    """Whether this worker may claim from a queue. Queues of other nodes and other runners are excluded."""
    return not queue.startswith(NODE_QUEUE) or queue in own_queues(node, worker)


def concerns(topic: str, queues: Collection[str] | None, node: str, worker: UUID | None = None) -> bool:
    """Whether this wake-up announces jobs that this worker, with these queues, may claim."""
    if not topic.startswith("ready:"):
        return False
    queue = topic.removeprefix("ready:")
    own = own_queues(node, worker)
    return serves(queue, node, worker) and (queues is None or queue in queues or queue in own)
