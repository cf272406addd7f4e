"""A process's connections to one file: one that writes, one that reads, each for one thread at a time.

They are opened when they are first needed, and let go when the store is closed or the process forks.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.clock import Clock
from tidemill.errors import StoreUnavailable
from tidemill.stores.base import SchemaStatus
from tidemill.stores.sql import migrations
from tidemill.stores.sql.sqlite import schema
from tidemill.stores.sql.sqlite.connection import Patience, connect, make_reader, make_writer, shut
from tidemill.stores.sql.sqlite.failures import busy
from tidemill.stores.sql.sqlite.place import Identity, refuse_network, trouble
from tidemill.stores.sql.sqlite.settings import SqliteSettings

_LOOK_AGAIN = 1.0  # seconds between two looks whether the file is still the one that was opened
_FORK_PATIENCE = 5.0  # seconds a fork waits for other threads to finish what they write


class Session:
    """The open file. ``writing`` and ``reading`` are taken before the connection of that name is used."""

    def __init__(self, path: str, settings: SqliteSettings, clock: Clock) -> None:
        self.path = path
        self.closed = False
        self.patience = Patience(settings.busy_timeout, path)
        self._settings = settings
        self._clock = clock
        self._spoilt = False
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Nothing is open, and nobody waits."""
        self.writing, self.reading, self._opening = threading.Lock(), threading.Lock(), threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._identity = Identity(self.path)
        self._looked = self._clock.monotonic()
        self._stopped: list[threading.Lock] | None = None  # the locks a fork holds

    @contextmanager
    def turn(self, lock: threading.Lock) -> Iterator[None]:
        """Take the turn among this process's threads."""
        if not lock.acquire(timeout=max(self.patience.seconds, 0.001)):
            raise busy(self.path)
        try:
            self.refuse_closed()
            yield
        finally:
            lock.release()

    def refuse_closed(self) -> None:
        if self.closed:
            raise StoreUnavailable(f"the store of {self.path} was closed; open a new one", path=self.path)
        if self._spoilt:
            raise StoreUnavailable(
                f"this process was forked in the middle of a transaction on {self.path}, which SQLite does not survive; "
                "fork outside of transactions, or start children with spawn",
                path=self.path,
            )

    def begin(self) -> sqlite3.Connection:
        """The writing connection, in a transaction: the turn among all processes."""
        writer = self._writer or self._open_writer()
        if self._clock.monotonic() - self._looked >= _LOOK_AGAIN:
            self._looked = self._clock.monotonic()
            self._identity.check()
        if writer.in_transaction:  # left behind by an interrupt at the worst moment
            writer.execute("rollback")
        self.patience(lambda: writer.execute("begin immediate"))
        return writer

    def reader(self) -> sqlite3.Connection:
        """The reading connection."""
        if self._reader is None:
            self._open_writer()  # which sees to the tables
            self._identity.check()  # to open a file that is gone would make a new one
            self._reader = self._connect(make_reader)
        return self._reader

    def identify(self) -> None:
        """Raise if the path no longer leads to the file that is open."""
        if self._writer is not None:
            self._identity.check()

    def version(self) -> int | None:
        """A number that moves with every commit of another connection; None while it cannot be asked."""
        reading = self.reading
        if not reading.acquire(blocking=False):
            return None
        try:
            if self._reader is None:
                return None
            (version,) = self._reader.execute("pragma data_version").fetchone()
            return int(version)
        except sqlite3.Error:
            return None
        finally:
            reading.release()

    # Opening ---------------------------------------------------------------------------------------------------------

    def _open_writer(self) -> sqlite3.Connection:
        with self._opening:
            if self._writer is None:
                self._writer = self._connect(self._set_up)
                self._identity = Identity(self.path)
            return self._writer

    def _connect(self, prepare: Callable[[sqlite3.Connection], object] | None = None) -> sqlite3.Connection:
        if (wrong := trouble(self.path)) is not None:
            raise StoreUnavailable(wrong, path=self.path)
        if not self._settings.force:
            refuse_network(self.path)
        connection = connect(self.path)
        try:
            if prepare is not None:
                prepare(connection)
        except BaseException:
            shut(connection)
            raise
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        """Make sure that the file is ours, or may be, before anything in it is changed; then bring it up to date."""
        if not self._settings.shared:
            self.patience(lambda: schema.refuse_foreign(connection, self.path))
        self._prepare(connection)
        if self._status(connection).pending:
            schema.migrate(connection, self.path, self._clock.now(), self.patience)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self.patience(lambda: self._status(connection))  # an error when the tables are newer than this code
        make_writer(connection, self._settings, self.patience)

    # Schema ----------------------------------------------------------------------------------------------------------

    def _status(self, connection: sqlite3.Connection) -> SchemaStatus:
        return migrations.status(migrations.load("sqlite"), schema.applied(connection), self.path)

    def status(self) -> SchemaStatus:
        """Where the schema stands. Looking makes no file, and changes none."""
        if not Path(self.path).exists() and trouble(self.path) is None:
            return migrations.status(migrations.load("sqlite"), [], self.path)
        connection = self._connect()
        try:
            return self.patience(lambda: self._status(connection))
        finally:
            shut(connection)

    def migrate(self) -> list[str]:
        """Bring the schema up to date, also beside other tables: whoever asks for it in so many words may."""
        connection = self._writer or self._connect(self._prepare)
        try:
            return schema.migrate(connection, self.path, self._clock.now(), self.patience)
        finally:
            if connection is not self._writer:
                shut(connection)

    # Letting go ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the file for good, and of its log as far as nobody else uses it."""
        self.closed = True
        with self.writing, self.reading:
            self._let_go(checkpoint=True)

    def _let_go(self, *, checkpoint: bool = False) -> None:
        if self._reader is not None:
            shut(self._reader)
        if self._writer is not None:
            shut(self._writer, checkpoint=checkpoint)
        self._reader = self._writer = None

    def before_fork(self, *, quiet: bool) -> None:
        """Let go of the file, so that the child inherits nothing of it; not ``quiet`` says that this cannot be now."""
        locks = (self.writing, self.reading, self._opening) if quiet else ()
        self._stopped = [lock for lock in locks if lock.acquire(timeout=_FORK_PATIENCE)]
        if len(self._stopped) == 3:
            self._let_go()

    def after_fork_in_parent(self) -> None:
        for lock in self._stopped or ():
            lock.release()
        self._stopped = None

    def after_fork_in_child(self) -> None:
        """Begin anew. Where nobody asked us before the fork, an idle connection can still be closed; a busy one cannot."""
        if self._stopped is None and not any(
            lock.locked() for lock in (self.writing, self.reading, self._opening)
        ):
            self._let_go()
        left = [connection for connection in (self._writer, self._reader) if connection is not None]
        _INHERITED.extend(left)
        self._spoilt = self._spoilt or bool(left)
        self._begin_anew()


_INHERITED: list[sqlite3.Connection] = []
"""Connections a forked child must neither use nor close; kept here, nobody does."""
