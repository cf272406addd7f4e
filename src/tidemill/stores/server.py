"""What a store knows about the database server behind it."""

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


class ServerStore(ABC):
    """The server behind a store."""

    @abstractmethod
    def server(self) -> ServerStatus | None:
        """The server's state. None where the database runs in this process, as in memory and with SQLite. Read only."""
