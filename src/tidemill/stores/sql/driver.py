"""What a dialect's driver does for the one SQL store: run named queries, hold transactions, carry wake-ups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from tidemill.stores.base import Hold, Listener, SchemaStatus

Row = tuple[Any, ...]
Takes = Mapping[str, object]
Items = Mapping[str, Sequence[object]]


class Call(NamedTuple):
    """One named query with what it is given."""

    name: str
    takes: Takes
    items: Items | None = None
    flags: tuple[str, ...] = ()


class Ahead(Protocol):
    """Queries that one thread sends before the last one is answered: as ``stores.ahead`` has it, for any query."""

    def send(self, call: Call) -> bool: ...

    @property
    def file(self) -> int: ...

    def answered(self) -> bool: ...

    def receive(self) -> list[Row]: ...


class Driver(Protocol):
    """One dialect, one database.

    The first call of ``run`` opens the database and checks its schema, so that a store can be made before its database
    is up. Errors are already ours.
    """

    url: str

    @property
    def cooperative(self) -> bool:
        """Whether it waits as ``stores.waiting`` says."""
        ...

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        """Run a named query in a transaction of its own, or in the one this thread has open; the rows it gives.

        ``takes`` are single values by name; one that is missing or None is NULL and leaves out the lines that need it.
        ``items`` are the columns of a batch. ``flags`` switch further optional lines on.
        """
        ...

    def run_together(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Run several named queries in one transaction, none of which depends on what another gives; the rows of each."""
        ...

    def run_each(
        self, name: str, takes: Takes, batches: Iterable[Items], keep: Callable[[list[list[Row]]], bool]
    ) -> list[list[Row]] | None:
        """Run a named query for every batch, in one transaction that is kept if the rows of each are to be. A batch may be made while
        the one before it is at work. None, and nothing asked for, where that cannot be.
        """
        ...

    def ahead(self) -> Ahead | None:
        """A way to send queries ahead, each in a transaction of its own; None where that cannot be."""
        ...

    def transaction(self) -> AbstractContextManager[None]: ...

    def schema(self) -> SchemaStatus: ...

    def migrate(self) -> list[str]: ...

    def check(self) -> None: ...

    def notify(self, topics: Iterable[str]) -> None: ...

    def carried(self, topic: str) -> dict[str, str]:
        """Parameters for a statement that sends this wake-up along with what it does; none where it cannot, or need not.

        Whoever asks runs the statement, and offers the topic to ``notify`` afterwards as always: it is not sent twice.
        """
        ...

    def listen(self) -> Listener: ...

    def hold(self, name: str) -> Hold | None: ...

    def close(self) -> None: ...
