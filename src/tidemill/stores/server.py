"""Properties of the database server of a store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import NamedTuple


class ServerStatus(NamedTuple):
    """A database server, as one session sees it."""

    version: str
    max_connections: int  #: for ordinary users; those reserved for superusers are not counted
    connections: int  #: client sessions on the server, of every program
    in_recovery: bool  #: whether it is a standby, which takes no writes
    synchronous_commit: str  #: of this store's sessions
    synchronous_standby_names: str  #: empty if no commit waits for a standby
    synchronous_standbys: (
        int  #: standbys that commits wait for and that stream now; 0 if the role may not see them
    )
    replay_age: timedelta | None  #: on a standby, how old its data is
    durability: str | None = None  #: that the store's URL asks for; None leaves it to the server

    @property
    def survives(self) -> str:
        """The failures that an accepted job survives with these settings."""
        if not self.synchronous_standby_names or self.synchronous_commit in ("local", "off"):
            return _SURVIVES["local" if self.synchronous_commit != "off" else "off"]
        return _SURVIVES[self.synchronous_commit]


_SURVIVES = {
    "off": "nothing for certain: a crash of the server may lose the last jobs",
    "local": "a crash of the server, but not its loss: a standby may lack the last jobs",
    "remote_write": "the loss of the primary, but not of both servers at once",
    "on": "the loss of the primary and a crash of the standby",
    "remote_apply": "the loss of the primary and a crash of the standby, and the standby shows it",
}


class BusStatus(NamedTuple):
    """The server that carries a store's wake-ups instead of the database."""

    url: str  #: without a password
    server: str | None  #: its kind and version, once it has answered
    error: str | None  #: why it does not answer; None if it does


class ServerStore(ABC):
    """The servers behind a store."""

    @abstractmethod
    def server(self) -> ServerStatus | None:
        """The server's state. None where the database runs in this process, as in memory and with SQLite. Read only."""

    def bus(self) -> BusStatus | None:
        """The server that ``wake`` in the store's URL names, after a moment of waiting for it; None without one. Read only."""
        return None
