"""The SQLite driver: named queries, transactions and wake-ups on one file.

A verb runs in its caller's thread. Writers take turns: within the process by a lock, between processes by SQLite's lock, which
every write transaction takes at its start. So no transaction fails half-way because of another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

from tidemill.clock import Clock
from tidemill.errors import BadSettings, StoreUnavailable, UsageError
from tidemill.stores.base import Listener, Lock, SchemaStatus
from tidemill.stores.coalescer import Coalescer
from tidemill.stores.lock_server import LockServer
from tidemill.stores.server import BusStatus, ServerStatus
from tidemill.stores.sql.driver import Items, QueryCall, Row, T, Takes, Turns, run_one_by_one
from tidemill.stores.sql.sqlite import forks
from tidemill.stores.sql.sqlite.failures import out_of_reach, translate
from tidemill.stores.sql.sqlite.file_locks import FileLocks
from tidemill.stores.sql.sqlite.session import FileSession
from tidemill.stores.sql.sqlite.settings import read_settings
from tidemill.stores.sql.sqlite.statements import Bound, Statements, execute
from tidemill.stores.sql.sqlite.wakeups import SqliteListener, broadcast

_NO_TAKES: Takes = {}
_TRANSLATED = (sqlite3.Error, OverflowError, UnicodeEncodeError)


class SqliteDriver:
    """One SQLite file."""

    cooperative = False  # it waits for locks and disks, which have no socket to watch

    def __init__(self, path: str, url: str, clock: Clock, options: Mapping[str, str]) -> None:
        if not path or path == ":memory:":
            raise BadSettings(f"{url} names no file; for a store without a file, use memory://", url=url)
        self.url = url
        self._clock = clock
        self._statements = Statements()
        self._session = FileSession(str(Path(path).absolute()), read_settings(options, url), clock)
        self._holds = FileLocks(self._session.path)
        self._reset()
        forks.watch(self)

    def _reset(self) -> None:
        path = self._session.path
        self._writer: sqlite3.Connection  # the connection of the open transaction
        self._owner: int | None = None  # the thread that has a transaction open
        self._topics: set[str] = set()
        self._listeners: set[SqliteListener] = set()
        self._coalescer = Coalescer(lambda topics: broadcast(path, topics))

    # Running queries -------------------------------------------------------------------------------------------------

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        takes = takes or _NO_TAKES
        program = self._statements.get(name, takes, flags)
        bound = program.bind(takes, items, self._clock.now)
        with self._translated(name):
            if self._owner == get_ident():
                rows = self._run_inside(bound, reads=program.reads)
            elif program.reads:
                rows = self._run_reading(bound)
            else:
                rows = self._run_alone(bound)
        return program.decode(rows) if rows else []

    def _run_reading(self, bound: Bound) -> list[Row]:
        session = self._session
        with session.turn(session.reading):
            reader = session.reader()
            return session.patience(lambda: execute(reader, bound))

    def _run_alone(self, bound: Bound) -> list[Row]:
        """Run in a separate transaction."""
        session = self._session
        with session.turn(session.writing):
            writer = session.begin()
            try:
                rows = execute(writer, bound)
                session.commit(writer)
            except BaseException:
                _roll_back(writer)
                raise
            return rows

    def _run_inside(self, bound: Bound, *, reads: bool) -> list[Row]:
        """Run in this thread's open transaction; a failing verb is rolled back to its savepoint."""
        writer = self._writer
        self._refuse_undone()
        if reads:
            return execute(writer, bound)
        writer.execute("savepoint verb")
        try:
            rows = execute(writer, bound)
        except BaseException:
            if writer.in_transaction:  # serious errors have already rolled back the whole transaction
                writer.execute("rollback to verb")
                writer.execute("release verb")
            raise
        writer.execute("release verb")
        return rows

    def run_together(self, calls: Sequence[QueryCall]) -> list[list[Row]]:
        if all(self._statements.get(call.name, call.takes, call.flags).reads for call in calls):
            # Reads need no turn of the writer; callers do not compare their rows.
            return [self.run(*call) for call in calls]
        with self.transaction():
            return [self.run(*call) for call in calls]

    def run_turns(self, begin: Callable[[], Turns[T]]) -> T:
        with self.transaction():
            return run_one_by_one(lambda call: self.run(*call), begin())

    def ahead(self) -> None:
        """Not supported: there is no network latency to hide."""

    def run_each(
        self, name: str, takes: Takes, batches: Iterable[Items], keep: Callable[[list[list[Row]]], bool]
    ) -> None:
        """Not supported: the database runs in this process, so there is no time to use."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._owner == get_ident():
            yield
            return
        session = self._session
        with session.turn(session.writing):
            with self._translated():
                self._writer = session.begin()
            self._owner, self._topics = get_ident(), set()
            try:
                yield
                self._commit()
            except BaseException:
                _roll_back(self._writer)
                raise
            finally:
                self._owner = None
            topics = self._topics
        self.notify(topics)

    def _commit(self) -> None:
        self._refuse_undone()
        with self._translated():
            self._session.commit(self._writer)

    def _refuse_undone(self) -> None:
        if not self._writer.in_transaction:
            raise StoreUnavailable(
                f"an error has rolled back this transaction on {self._session.path}; leave the block and start it again"
            )

    @contextmanager
    def _translated(self, query: str = "") -> Iterator[None]:
        """Translate SQLite's errors."""
        try:
            yield
        except _TRANSLATED as error:
            if out_of_reach(error):
                self._session.identify()
            raise translate(error, self._session.path, query) from error

    # Schema ----------------------------------------------------------------------------------------------------------

    def schema(self) -> SchemaStatus:
        self._session.refuse_closed()
        with self._translated():
            return self._session.status()

    def migrate(self) -> list[str]:
        with self._session.turn(self._session.writing), self._translated():
            return self._session.migrate()

    def check(self) -> None:
        self.run("clock")
        self._session.identify()
        self.schema()

    # Wake-ups --------------------------------------------------------------------------------------------------------

    def server(self) -> ServerStatus | None:
        return None

    def locks(self) -> LockServer | None:
        return None

    def bus(self) -> BusStatus | None:
        return None

    def notify_later(self, topics: Iterable[str]) -> None:
        """Nothing to do: other processes watch the file."""

    def rest(self) -> None:
        """Nothing to do: the connections belong to a file and keep nothing busy."""

    def notify(self, topics: Iterable[str]) -> None:
        if self._owner == get_ident():
            self._topics.update(topics)
        else:
            self._coalescer.offer(topics)

    def listen(self) -> Listener:
        self.run("clock")  # opens the file, or raises the reason why it cannot
        listener = SqliteListener(self._session.path, self._session.version, self._listeners.discard)
        self._listeners.add(listener)
        return listener

    def hold(self, name: str) -> Lock | None:
        self.run("clock")  # opens the file, or raises the reason why it cannot
        return self._holds.take(name)

    def scrub(self) -> None:
        if self._owner == get_ident():
            raise UsageError("a store cannot be scrubbed inside its own transaction; leave the block first")
        session = self._session
        with session.turn(session.writing), session.turn(session.reading), self._translated():
            session.scrub()

    # Closing and forking ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._owner == get_ident():
            raise UsageError("a store cannot be closed inside its own transaction; leave the block first")
        self._coalescer.close()
        for listener in list(self._listeners):
            listener.close()
        self._holds.close()
        self._session.close()

    def before_fork(self) -> None:
        self._session.before_fork(quiet=self._owner != get_ident())
        self._holds.before_fork()

    def after_fork_in_parent(self) -> None:
        self._holds.after_fork_in_parent()
        self._session.after_fork_in_parent()

    def after_fork_in_child(self) -> None:
        self._holds.after_fork_in_child()
        self._session.after_fork_in_child()
        self._reset()


def _roll_back(writer: sqlite3.Connection) -> None:
    if writer.in_transaction:
        writer.execute("rollback")
