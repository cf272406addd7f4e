"""A process's connections to one file: a writer and a reader.

Each is used by one thread at a time.

They are opened on first use, and closed when the store is closed or the process forks.
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
from tidemill.stores.sql.migrations import Installed
from tidemill.stores.sql.sqlite import schema
from tidemill.stores.sql.sqlite.connection import LockTimeout, connect, make_reader, make_writer, shut
from tidemill.stores.sql.sqlite.failures import busy
from tidemill.stores.sql.sqlite.file_checks import FileIdentity, create_private, refuse_network, trouble
from tidemill.stores.sql.sqlite.settings import SqliteSettings

_SCRUB_PAGES = 4096  # pages that one transaction of ``scrub`` overwrites
_FORK_PATIENCE = 5.0  # seconds for which a fork waits for other threads to finish writing


class FileSession:
    """The open file. A thread acquires ``writing`` or ``reading`` before it uses that connection."""

    def __init__(self, path: str, settings: SqliteSettings, clock: Clock) -> None:
        self.path = path
        self.closed = False
        self.patience = LockTimeout(settings.busy_timeout, path)
        self._settings = settings
        self._clock = clock
        self._spoilt = False
        # Of the first file that was opened; this session never opens another one.
        self._identity: FileIdentity | None = None
        self._reset()

    def _reset(self) -> None:
        """Reset to the unopened state."""
        self.writing, self.reading, self._opening = threading.Lock(), threading.Lock(), threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._stopped: list[threading.Lock] | None = None  # the locks a fork holds

    @contextmanager
    def turn(self, lock: threading.Lock) -> Iterator[None]:
        """Acquire a lock among this process's threads."""
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
        """The writing connection, in a transaction, which excludes writers of all processes."""
        writer = self._writer or self._open_writer()
        self.identify()
        if writer.in_transaction:  # left over from an interrupt
            writer.execute("rollback")
        self.patience(lambda: writer.execute("begin immediate"))
        return writer

    def commit(self, writer: sqlite3.Connection) -> None:
        """Commit, then raise if the path no longer leads to the file: the caller must not report the change as stored."""
        self.patience(lambda: writer.execute("commit"))
        self.identify(written=True)

    def reader(self) -> sqlite3.Connection:
        """The reading connection."""
        if self._reader is None:
            self._open_writer()  # which creates or updates the tables
            self._reader, _ = self._connect(make_reader)
        self.identify()
        return self._reader

    def identify(self, *, written: bool = False) -> None:
        """Raise an error if the path no longer leads to the open file."""
        if self._identity is not None:
            self._identity.check(written=written)

    def version(self) -> int | None:
        """A number that changes with every commit of another connection; None while it is not available."""
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

    def scrub(self) -> None:
        """Overwrite free pages and the log, which still contain deleted rows.

        New rows fill the free pages, and deleting them under ``secure_delete`` overwrites these pages with zeros. Each
        transaction is short, because it excludes other writers.
        """
        writer = self._writer or self._open_writer()
        (page,) = writer.execute("pragma page_size").fetchone()
        writer.execute("pragma secure_delete = on").close()
        try:
            self._write(writer, "create table if not exists tidemill_scrub(filler blob)")
            while (free := writer.execute("pragma freelist_count").fetchone()[0]) > 0:
                size = min(free, _SCRUB_PAGES) * page
                self._write(writer, "insert into tidemill_scrub values (zeroblob(?))", (size,))
            for (row,) in writer.execute("select rowid from tidemill_scrub").fetchall():
                self._write(writer, "delete from tidemill_scrub where rowid = ?", (row,))
            self._write(writer, "drop table tidemill_scrub")
        finally:
            writer.execute("pragma secure_delete = fast").close()
        self.patience(lambda: writer.execute("pragma wal_checkpoint(truncate)").fetchone())

    def _write(self, writer: sqlite3.Connection, sql: str, takes: tuple[object, ...] = ()) -> None:
        self.patience(lambda: writer.execute("begin immediate"))
        try:
            writer.execute(sql, takes)
            self.commit(writer)
        except BaseException:
            if writer.in_transaction:
                writer.execute("rollback")
            raise

    # Opening ---------------------------------------------------------------------------------------------------------

    def _open_writer(self) -> sqlite3.Connection:
        with self._opening:
            if self._writer is None:
                self._writer, self._identity = self._connect(self._set_up)
            return self._writer

    def _connect(
        self, prepare: Callable[[sqlite3.Connection], object] | None = None
    ) -> tuple[sqlite3.Connection, FileIdentity]:
        """A new connection, and the file that it leads to."""
        self.identify()  # otherwise SQLite would create a new file, or open another one
        if (wrong := trouble(self.path)) is not None:
            raise StoreUnavailable(wrong, path=self.path)
        if not self._settings.force:
            refuse_network(self.path)
        create_private(self.path)
        identity = self._identity or FileIdentity(self.path)
        connection = connect(self.path)
        try:
            if prepare is not None:
                prepare(connection)
            identity.check()
        except BaseException:
            shut(connection)
            raise
        return connection, identity

    def _set_up(self, connection: sqlite3.Connection) -> None:
        """Check that the file is Tidemill's or unused before anything in it is changed; then migrate it."""
        if not self._settings.shared:
            self.patience(lambda: schema.refuse_foreign(connection, self.path))
        self._prepare(connection)
        if self._status(connection).pending:
            schema.migrate(connection, self.path, self._clock.now(), self.patience)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        self.patience(lambda: self._status(connection))  # raises if the schema does not serve this code
        make_writer(connection, self._settings, self.patience)

    # Schema ----------------------------------------------------------------------------------------------------------

    def _status(self, connection: sqlite3.Connection) -> SchemaStatus:
        return migrations.status(migrations.load("sqlite"), schema.installed(connection), self.path)

    def status(self) -> SchemaStatus:
        """The state of the schema. Creates and changes no file."""
        if not Path(self.path).exists() and trouble(self.path) is None:
            return migrations.status(migrations.load("sqlite"), Installed(), self.path)
        connection, _ = self._connect()
        try:
            return self.patience(lambda: self._status(connection))
        finally:
            shut(connection)

    def migrate(self) -> list[str]:
        """Migrate the schema, also next to other tables, because the caller explicitly asked for it."""
        connection = self._writer or self._connect(self._prepare)[0]
        try:
            return schema.migrate(connection, self.path, self._clock.now(), self.patience)
        finally:
            if connection is not self._writer:
                shut(connection)

    # Closing ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the file permanently, and its log as far as no other process uses it."""
        self.closed = True
        with self.writing, self.reading:
            self._let_go(checkpoint=True)

    def _let_go(self, *, checkpoint: bool = False) -> None:
        if self._reader is not None:
            shut(self._reader)
        if self._writer is not None:
            # A new file at the path may share the log; a checkpoint would move its changes into the old file.
            shut(
                self._writer, checkpoint=checkpoint and self._identity is not None and self._identity.holds()
            )
        self._reader = self._writer = None

    def before_fork(self, *, quiet: bool) -> None:
        """Close the file, so that the child does not inherit it. With ``quiet`` false this is not possible now."""
        locks = (self.writing, self.reading, self._opening) if quiet else ()
        self._stopped = [lock for lock in locks if lock.acquire(timeout=_FORK_PATIENCE)]
        if len(self._stopped) == 3:
            self._let_go()

    def after_fork_in_parent(self) -> None:
        for lock in self._stopped or ():
            lock.release()
        self._stopped = None

    def after_fork_in_child(self) -> None:
        """Start over. Without ``before_fork`` an idle connection can still be closed; a busy one cannot."""
        if self._stopped is None and not any(
            lock.locked() for lock in (self.writing, self.reading, self._opening)
        ):
            self._let_go()
        left = [connection for connection in (self._writer, self._reader) if connection is not None]
        _INHERITED.extend(left)
        self._spoilt = self._spoilt or bool(left)
        self._reset()


_INHERITED: list[sqlite3.Connection] = []
"""Connections that a forked child must neither use nor close; the reference keeps them from being garbage-collected."""
