"""The doctor's checks of a PostgreSQL server: free connections and what survives its loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from tidemill.client.stats.loads import is_living
from tidemill.stores.base import Store
from tidemill.stores.server import ServerStatus

MARGIN = 1.3
"""Connections that the living workers may need while they are busy, as a multiple of what they hold idle."""

_OWN = 2  # idle connections of a supervisor: wake-ups, and heartbeats with its other calls

_NAME_IT = "name the standbys there, or turn on synchronous_mode of Patroni"

Finding = tuple[str, str, str]


def look_at_server(store: Store, now: datetime) -> Iterator[Finding]:
    """Compare the server's settings with what the living workers need."""
    server = store.server()
    if server is not None:
        yield _connections(server, idle_connections(store, now))
        yield _durability(server)


def _durability(server: ServerStatus) -> Finding:
    text = f"an accepted job survives {server.survives}"
    if server.durability in ("standby", "applied"):
        if not server.synchronous_standby_names:
            return (
                "fail",
                "durability",
                f"durability={server.durability} needs a standby, but synchronous_standby_names is empty: {text}; {_NAME_IT}",
            )
        if not server.synchronous_standbys:
            return (
                "warn",
                "durability",
                "no synchronous standby is seen to stream; start one, or grant pg_monitor: without one, enqueues wait",
            )
    if server.synchronous_commit == "off":
        return "warn", "durability", f"{text}; set synchronous_commit, or add durability=local to the URL"
    return "ok", "durability", text


def idle_connections(store: Store, now: datetime) -> int:
    """The connections that the living workers hold while they are idle. Runners of one host share a supervisor, or have several."""
    hosts = Counter(worker.host for worker in store.workers() if is_living(worker, now))
    return sum(runners + _OWN for runners in hosts.values())


def _connections(server: ServerStatus, idle: int) -> Finding:
    held = f"{server.connections} of {server.max_connections} connections are in use"
    needed = round(MARGIN * idle)
    if server.connections >= server.max_connections:
        return "fail", "connections", f"{held}; raise max_connections, or lower ?pool= of the programs"
    if max(needed, MARGIN * server.connections) > server.max_connections:
        return (
            "warn",
            "connections",
            f"{held}, and the living workers may need {needed}; raise max_connections, or put a pooler in between",
        )
    return "ok", "connections", f"{held}; the living workers may need {needed}"
