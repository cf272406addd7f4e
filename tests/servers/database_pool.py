"""Databases with all tables and no rows, which tests use one after the other.

The server needs more CPU time to copy and to drop a database than most tests need for everything else. A database that a
test returns is therefore emptied and lent again, but only if nothing except rows has changed in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from tests.servers.postgres import TestPostgres

_END_SESSIONS = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""

# A table that holds no page has never held a row. The rows of "meta" and "migrations" belong to the schema. The triggers of
# the audit forbid TRUNCATE; a replica role does not fire them.
_EMPTY = """
set session_replication_role = replica;
do $$
declare used text;
begin
    select string_agg(oid::regclass::text, ', ') into used from pg_class
    where relnamespace = 'tidemill'::regnamespace and relkind = 'r' and pg_relation_size(oid) > 0
        and relname not in ('meta', 'migrations');
    if used is not null then
        execute 'truncate ' || used || ' cascade';
    end if;
    perform setval(seqrelid, seqstart, false) from pg_sequence;
    perform pg_stat_reset();
end $$
"""

# Everything that a test can change except rows: definitions with their versions (xmin), storage options, statistics of the
# planner, settings, and the rows of the two tables above. TRUNCATE gives a table a new version in pg_class.
_DEFINITIONS = """
select md5(concat_ws('/',
    (select string_agg(concat_ws(' ', oid, relname, relnamespace, relowner, relkind, relnatts, relhasindex, relchecks,
        relhastriggers, relrowsecurity, relreplident, reloptions, relacl, case relkind when 'r' then reltuples end),
        ',' order by oid)
        from pg_class where oid >= 16384),
    (select sum(hashtext(concat(attrelid, ' ', attname, ' ', xmin))::bigint) from pg_attribute where attrelid >= 16384),
    (select string_agg(concat_ws(' ', indexrelid, indisvalid, indisunique), ',' order by indexrelid)
        from pg_index where indexrelid >= 16384),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_trigger),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_constraint where oid >= 16384),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_proc where oid >= 16384),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_namespace where nspname !~ '^pg_(toast_)?temp_'),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_policy),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_rewrite where oid >= 16384),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_extension),
    (select string_agg(concat(oid, ' ', xmin), ',' order by oid) from pg_publication),
    (select count(*) from pg_statistic where starelid >= 16384),
    (select count(*) from pg_largeobject_metadata),
    (select count(*) from pg_prepared_xacts where database = current_database()),
    (select count(*) from pg_replication_slots where database = current_database()),
    (select string_agg(concat(setrole, ' ', setconfig), ',' order by setrole) from pg_db_role_setting
        where setdatabase = (select oid from pg_database where datname = current_database())),
    (select concat(datdba, ' ', datallowconn, ' ', datconnlimit, ' ', datacl) from pg_database
        where datname = current_database()),
    (select string_agg(m::text, ',' order by m::text) from tidemill.meta m),
    (select string_agg(m::text, ',' order by m::text) from tidemill.migrations m)
))
"""


class DatabasePool:
    """The copies of one template database on one server.

    ``migrate`` creates all tables in the database at a URL; ``prefix`` begins the names of the databases.
    """

    def __init__(self, server: TestPostgres, migrate: Callable[[str], None], prefix: str) -> None:
        self._server, self._migrate, self._prefix = server, migrate, prefix
        self._template: str | None = None
        self._idle: list[str] = []
        self._definitions: str | None = None

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Lend a database without rows for the block, and yield its URL."""
        name = self._idle.pop() if self._idle else self._copy()
        try:
            yield self._server.url(name)
        finally:
            if self._emptied(name):
                self._idle.append(name)
            else:
                self._server.drop_database(name)

    def close(self) -> None:
        """Drop the idle databases and the template."""
        names, self._idle = self._idle, []
        if self._template is not None:
            names.append(self._template)
            self._template = self._definitions = None
        for name in names:
            self._server.drop_database(name)

    def _copy(self) -> str:
        name = self._new_name()
        if self._template is None:
            template = self._new_name()
            self._migrate(self._server.create_database(template))
            self._template = template
        url = self._server.create_database(name, template=self._template)
        if self._definitions is None:
            with psycopg.connect(url, autocommit=True) as connection:
                self._definitions = _read_definitions(connection)
        return name

    def _new_name(self) -> str:
        return f"{self._prefix}_{uuid4().hex[:12]}"

    def _emptied(self, name: str) -> bool:
        """Delete all rows. False if the server refuses that, or if more than rows has changed."""
        try:
            with psycopg.connect(self._server.url(name), autocommit=True, connect_timeout=10) as connection:
                connection.execute(_END_SESSIONS)
                connection.execute(_EMPTY)
                return _read_definitions(connection) == self._definitions
        except psycopg.Error:
            return False


def _read_definitions(connection: psycopg.Connection) -> str | None:
    row = connection.execute(_DEFINITIONS).fetchone()
    return None if row is None else str(row[0])
