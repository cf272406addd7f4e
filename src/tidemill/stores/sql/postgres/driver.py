"""The PostgreSQL driver: connections, transactions, timeouts and migrations.

It also works behind PgBouncer in transaction mode. Behind a pooler the session is shared: no prepared statements, no LISTEN, and
timeouts are set inside each transaction. The driver detects this, because the timeouts requested at connect are then not in force.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg

from tidemill.errors import BadSettings, StoreBusy, StoreUnavailable
from tidemill.stores.base import Listener, Lock, SchemaStatus
from tidemill.stores.bus.address import open_bus, redis_url, without_password
from tidemill.stores.coalescer import Coalescer
from tidemill.stores.lock_server import LockServer
from tidemill.stores.server import BusStatus, ServerStatus
from tidemill.stores.sql import migrations
from tidemill.stores.sql.driver import Items, QueryCall, Row, T, Takes, Turns, run_one_by_one
from tidemill.stores.sql.postgres import advisory_locks, schema
from tidemill.stores.sql.postgres.failures import RETRIED, UNPACKABLE, again, translate
from tidemill.stores.sql.postgres.pipeline import PostgresPipeline
from tidemill.stores.sql.postgres.pool import Pool
from tidemill.stores.sql.postgres.prepared_connection import Connection
from tidemill.stores.sql.postgres.server import read_server
from tidemill.stores.sql.postgres.settings import PostgresSettings
from tidemill.stores.sql.postgres.statements import PLAN_BY_VALUE, PreparedCall, Statement, Statements
from tidemill.stores.sql.postgres.wakeups import DeafListener, PostgresListener, payloads
from tidemill.stores.wait_function import wait_function

_NO_TAKES: Takes = {}

_PLANNING = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off"}
"""Plan each statement once. The statements are written for one plan, by index, whatever the arrays hold; planning them each
time costs more than running them on a single job. A plan made while a table was empty must not scan or sort it later."""


class PostgresDriver:
    """One PostgreSQL database, one schema in it."""

    def __init__(self, settings: PostgresSettings, *, migrate: bool = False) -> None:
        self.url = settings.shown
        self._settings = settings
        self._migrate = migrate
        self._statements = Statements(settings.schema)
        self._pool = Pool(self._connect, settings.pool, patience=settings.connect_timeout)
        self._reserve = Pool(self._connect, 1, patience=settings.connect_timeout)
        self._is_open = False
        self._pooled = bool(settings.pooled)
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._local = threading.local()
        self._opening = threading.Lock()
        self._coalescer = Coalescer(self._send)
        wake = self._settings.wake
        self._bus = None if wake is None else open_bus(wake, self._bus_channel)
        self._sends = self._settings.notify and self._bus is None  # the database sends the wake-ups
        self._locks: LockServer | None = None
        self._listeners: set[PostgresListener | DeafListener] = set()
        self._holds: set[advisory_locks.AdvisoryLock] = set()

    def _restart_after_fork(self) -> None:
        """Start over in a forked process: threads, listeners and the open transaction belong to the parent."""
        if self._pid != os.getpid():
            self._begin()

    @property
    def cooperative(self) -> bool:
        # Behind a pooler each statement has a transaction around it, and psycopg waits for that itself.
        return not self._pooled

    # Running queries -------------------------------------------------------------------------------------------------

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        self._restart_after_fork()
        takes = takes or _NO_TAKES
        connection: Connection | None = getattr(self._local, "connection", None)
        statement = self._statements.get(name, takes, flags, alone=connection is None)
        try:
            return self._run_packed(connection, statement, statement.pack(takes, items))
        except (psycopg.Error, *UNPACKABLE) as error:
            raise translate(error, self.url) from error

    def prepare(self, name: str, takes: Takes, differing: Sequence[str]) -> PreparedCall:
        """Pack the parameters that many calls of a named query have in common; ``differing`` are the others."""
        try:
            return self._statements.get(name, takes, ()).prepared(takes, differing)
        except UNPACKABLE as error:
            raise translate(error, self.url) from error

    def run_prepared(self, call: PreparedCall, values: Sequence[object]) -> list[Row]:
        """Run a prepared call with these values of its differing parameters, as ``run`` does."""
        self._restart_after_fork()
        parameters = call.packed.copy()
        try:
            for (place, pack), value in zip(call.places, values, strict=True):
                if value is not None:
                    parameters[place] = pack(value)
            return self._run_packed(getattr(self._local, "connection", None), call.statement, parameters)
        except (psycopg.Error, *UNPACKABLE) as error:
            raise translate(error, self.url) from error

    def _run_packed(
        self, connection: Connection | None, statement: Statement, parameters: list[bytes | None]
    ) -> list[Row]:
        if connection is not None:
            try:
                return connection.run(statement, parameters, prepare=not self._pooled)
            except psycopg.errors.ReadOnlySqlTransaction:
                self._leave_standby(connection)
                raise
        if not self._is_open:
            self._open()
        try:
            return self._run_alone(statement, parameters)
        except RETRIED:
            return again(self._run_alone, statement, parameters)

    def _run_alone(self, statement: Statement, parameters: list[bytes | None]) -> list[Row]:
        pool = self._pool
        connection = pool.free() if statement.local else pool.take()
        if connection is None:
            # All connections may be waiting for a standby. A heartbeat must not wait with them.
            pool = self._reserve
            connection = pool.take()
        try:
            if not self._pooled:
                if statement.by_value:
                    return connection.run_together([(PLAN_BY_VALUE, ()), (statement, parameters)])[-1]
                return connection.run(statement, parameters, prepare=True)
            # Behind a pooler, statements are not prepared, and therefore planned with their values.
            with connection.transaction():
                self._limit(connection)
                return connection.run(statement, parameters, prepare=False)
        except psycopg.errors.ReadOnlySqlTransaction:
            self._leave_standby(connection)
            raise
        finally:
            pool.give_back(connection)

    def _leave_standby(self, connection: Connection) -> None:
        """Close the connections to a primary that has become a standby: the next one may reach the new primary."""
        connection.close()
        self._pool.empty()
        self._reserve.empty()

    def run_together(self, calls: Sequence[QueryCall]) -> list[list[Row]]:
        self._restart_after_fork()
        self._ensure()
        if self._pooled or getattr(self._local, "connection", None) is not None:
            with self.transaction():
                return [self.run(*call) for call in calls]
        statements = [self._statements.get(call.name, call.takes, call.flags) for call in calls]
        try:
            packed = [
                (statement, statement.pack(call.takes, call.items))
                for statement, call in zip(statements, calls, strict=True)
            ]
            try:
                return self._run_all(packed)
            except RETRIED:
                return again(self._run_all, packed)
        except (psycopg.Error, *UNPACKABLE) as error:
            raise translate(error, self.url) from error

    def run_turns(self, begin: Callable[[], Turns[T]]) -> T:
        self._restart_after_fork()
        self._ensure()
        if self._pooled or getattr(self._local, "connection", None) is not None:
            with self.transaction():
                return run_one_by_one(lambda call: self.run(*call), begin())
        try:
            try:
                return self._take_turns(begin)
            except RETRIED:
                return again(self._take_turns, begin)
        except (psycopg.Error, *UNPACKABLE) as error:
            raise translate(error, self.url) from error

    def _take_turns(self, begin: Callable[[], Turns[T]]) -> T:
        connection = self._pool.take()
        try:
            return connection.run_turns(begin(), self._packed)
        finally:
            self._pool.give_back(connection)

    def _packed(self, call: QueryCall) -> tuple[Statement, list[bytes | None]]:
        statement = self._statements.get(call.name, call.takes, call.flags)
        return statement, statement.pack(call.takes, call.items)

    def run_each(
        self, name: str, takes: Takes, batches: Iterable[Items], keep: Callable[[list[list[Row]]], bool]
    ) -> list[list[Row]] | None:
        self._restart_after_fork()
        if self._pooled or getattr(self._local, "connection", None) is not None:
            return None
        self._ensure()
        statement = self._statements.get(name, takes, ())
        connection = self._pool.take()
        try:
            return connection.run_each(statement, (statement.pack(takes, items) for items in batches), keep)
        except (psycopg.Error, *UNPACKABLE) as error:
            raise translate(error, self.url) from error
        finally:
            self._pool.give_back(connection)

    def _run_all(self, packed: Sequence[tuple[Statement, list[bytes | None]]]) -> list[list[Row]]:
        connection = self._pool.take()
        try:
            return connection.run_together(packed)
        finally:
            self._pool.give_back(connection)

    def ahead(self) -> PostgresPipeline | None:
        self._restart_after_fork()
        self._ensure()
        if self._pooled:
            return None
        return PostgresPipeline(self._pool, self._statements, lambda call: self.run(*call), self.url)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._restart_after_fork()
        if getattr(self._local, "connection", None) is not None:
            yield
            return
        self._ensure()
        # Work that this thread does while waiting might call the store and end up in this transaction.
        alone = wait_function.set(None)
        theirs: psycopg.Error | None = (
            None  # from a connection of the caller; errors of store verbs are translated
        )
        try:
            with self._pool.connection() as connection, connection.transaction():
                if self._pooled:
                    self._limit(connection)
                self._local.connection = connection
                self._local.topics = set()
                try:
                    yield
                except psycopg.Error as error:
                    theirs = error
                    raise
                finally:
                    self._local.connection = None
                _refuse_half(connection)
        except psycopg.Error as error:
            if error is theirs:
                raise
            raise translate(error, self.url) from error
        finally:
            wait_function.reset(alone)
        if self._local.topics:
            self.notify(self._local.topics)

    def _limit(self, connection: Connection) -> None:
        """Set the timeouts and the durability for one transaction, for a shared session."""
        connection.execute(
            "select set_config('statement_timeout', %s, true), set_config('lock_timeout', %s, true)",
            (_milliseconds(self._settings.statement_timeout), _milliseconds(self._settings.lock_timeout)),
        )
        for name, value in self._settings.commits.items():
            connection.execute("select set_config(%s, %s, true)", (name, value))

    # Connecting ------------------------------------------------------------------------------------------------------

    def _connect(self) -> Connection:
        limits = {
            "statement_timeout": _milliseconds(self._settings.statement_timeout),
            "lock_timeout": _milliseconds(self._settings.lock_timeout),
        }
        connection: Connection
        if self._pooled:
            connection = Connection.connect(self._settings.conninfo, autocommit=True)
        else:
            wanted = {**limits, **_PLANNING, **self._settings.commits}
            options = " ".join(f"-c {name}={value}" for name, value in wanted.items())
            connection = self._connect_with(options)
        try:
            self._inspect(connection, limits)
        except BaseException:
            connection.close()
            raise
        connection.prepare_threshold = None  # psycopg would discard the statements that this driver prepares
        return connection

    def _connect_with(self, options: str) -> Connection:
        try:
            return Connection.connect(self._settings.conninfo, autocommit=True, options=options)
        except psycopg.OperationalError as error:
            if "startup parameter" not in str(error):
                raise
            self._pooled = True
            return Connection.connect(self._settings.conninfo, autocommit=True)

    def _inspect(self, connection: Connection, limits: dict[str, str]) -> None:
        """Check the encoding, and whether the session is shared."""
        cursor = connection.execute(
            "select set_config('timezone', 'UTC', false), current_setting('server_encoding'),"
            " current_setting('statement_timeout')::interval = %s::interval",
            (f"{limits['statement_timeout']} milliseconds",),
        )
        _, encoding, ours = cursor.fetchone() or (None, "UTF8", False)
        if encoding != "UTF8":
            raise StoreUnavailable(
                f"{self.url} stores text as {encoding}; create a database with encoding UTF8"
            )
        if not ours and self._settings.pooled is None:
            self._pooled = True

    # Schema ----------------------------------------------------------------------------------------------------------

    def _ensure(self) -> None:
        """Check the schema before the first query of this store."""
        if not self._is_open:
            self._open()

    def _open(self) -> None:
        with self._opening:
            if not self._is_open:
                if self._migrate:
                    self._apply()
                self._check()
                self._is_open = True

    def schema(self) -> SchemaStatus:
        try:
            with self._pool.connection() as connection:
                installed = schema.installed(connection, self._settings.schema, self.url)
        except psycopg.Error as error:
            raise translate(error, self.url) from error
        return migrations.status(migrations.load("postgres"), installed, self.url)

    def migrate(self) -> list[str]:
        with self._opening:
            return self._apply()

    def _apply(self) -> list[str]:
        try:
            with self._pool.connection() as connection:
                return schema.migrate(connection, self._settings.schema, self.url, self._statements.qualify)
        except psycopg.Error as error:
            raise translate(error, self.url) from error

    def check(self) -> None:
        if self._migrate:
            self._ensure()  # create missing tables, if permitted, instead of reporting them
        self._check()

    def _check(self) -> None:
        state = self.schema()
        if state.pending:
            raise migrations.outdated(self.url, state)

    # Wake-ups --------------------------------------------------------------------------------------------------------

    @property
    def channel(self) -> str:
        """The channel of ``NOTIFY``."""
        return f"{self._settings.schema}_wake"

    def notify(self, topics: Iterable[str]) -> None:
        self._restart_after_fork()
        if not self._settings.notify:
            return
        if getattr(self._local, "connection", None) is not None:
            self._local.topics.update(topics)
        else:
            self._coalescer.offer(topics)

    def may_wake(self) -> bool:
        """Whether a statement may send its own wake-up now; otherwise the caller notifies the workers afterwards."""
        self._restart_after_fork()
        if not self._sends or getattr(self._local, "connection", None) is not None:
            return False
        return self._coalescer.take_turn()

    def notify_later(self, topics: Iterable[str]) -> None:
        self._restart_after_fork()
        if self._bus is not None:
            self._bus.send_later(topics)

    def _bus_channel(self) -> str:
        return f"tidemill.{self.run('installation')[0][0]}.wake"

    def locks(self) -> LockServer | None:
        self._restart_after_fork()
        url = self._settings.locks
        if url is None:
            return None
        with self._opening:
            if self._locks is None:
                from tidemill.stores.redis_locks import RedisLocks

                owner = f"{socket.gethostname()}-{os.getpid()}"
                self._locks = RedisLocks(redis_url(url), without_password(url), self._lock_prefix, owner)
        return self._locks

    def _lock_prefix(self) -> str:
        return f"tidemill:{self.run('installation')[0][0]}:"

    def bus(self) -> BusStatus | None:
        self._restart_after_fork()
        return None if self._bus is None else self._bus.status()

    def _send(self, topics: frozenset[str]) -> None:
        if self._bus is not None:
            self._bus.send(topics)
            return
        for payload in payloads(topics):
            self.run("wake", {"channel": self.channel, "payload": payload})

    def listen(self) -> Listener:
        self._restart_after_fork()
        self._ensure()
        self._pool.check()
        if self._bus is not None:
            return self._bus.listen()
        listener: PostgresListener | DeafListener
        if self._pooled or not self._settings.notify:
            listener = DeafListener(self._listeners.discard)
        else:
            listener = PostgresListener(self._connect, self.channel, self._listeners.discard)
        self._listeners.add(listener)
        return listener

    # Holds -----------------------------------------------------------------------------------------------------------

    def hold(self, name: str) -> Lock | None:
        self._restart_after_fork()
        self._ensure()
        self._pool.check()
        if self._pooled:
            raise BadSettings(
                f"{self.url} is reached through a pooler that shares its sessions, so no lock can be held there;"
                " use coordination 'lease', or connect to the server directly"
            )
        key = advisory_locks.lock_key(self._settings.schema, name)
        try:
            if not self._may_be_free(key):
                return None
            hold = advisory_locks.take(self._connect, key, self._holds.discard)
        except psycopg.Error as error:
            raise translate(error, self.url) from error
        if hold is not None:
            self._holds.add(hold)
            self._release_if_closed(hold)
        return hold

    def _may_be_free(self, key: int) -> bool:
        if getattr(self._local, "connection", None) is not None:
            return True  # a test on this connection would hold the lock until the commit, and there may be no other connection
        with self._pool.connection() as connection:
            return advisory_locks.is_free(connection, key)

    def _release_if_closed(self, hold: Lock) -> None:
        try:
            self._pool.check()
        except StoreUnavailable:  # closed by another thread in the meantime
            hold.release()
            raise

    def server(self) -> ServerStatus:
        self._restart_after_fork()
        try:
            with self._pool.connection() as connection:
                return read_server(connection)._replace(durability=self._settings.durability)
        except psycopg.Error as error:
            raise translate(error, self.url) from error

    def rest(self) -> None:
        self._restart_after_fork()
        self._pool.rest(keep=1)
        self._reserve.rest(keep=0)

    def scrub(self) -> None:
        """Nothing to do: the server's vacuum removes deleted rows."""

    def close(self) -> None:
        self._restart_after_fork()
        self._coalescer.close()
        for listener in list(self._listeners):
            listener.close()
        if self._bus is not None:
            self._bus.close()
        if self._locks is not None:
            self._locks.close()
        self._pool.close()
        self._reserve.close()
        for hold in list(self._holds):
            hold.release()


def _refuse_half(connection: Connection) -> None:
    """Refuse to commit a failed transaction: PostgreSQL would answer with a rollback and no error."""
    if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
        raise StoreBusy(
            "a verb of this transaction failed, so the whole transaction was rolled back; repeat all of it"
        )


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
