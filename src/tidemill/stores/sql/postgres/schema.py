"""The schema of one PostgreSQL database: what it has, and bringing it up to date under a lock."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tidemill.errors import SchemaForeign
from tidemill.ids import new_id
from tidemill.stores.sql import migrations
from tidemill.stores.sql.migrations import Applied
from tidemill.stores.sql.postgres.wire import Connection


def applied(connection: Connection, schema: str, where: str) -> list[Applied]:
    """The migrations this database has. A schema with tables but without our record of them belongs to somebody else."""
    tables = {
        name
        for (name,) in connection.execute(
            "select tablename from pg_catalog.pg_tables where schemaname = %s", (schema,), prepare=False
        ).fetchall()
    }
    if "migrations" not in tables:
        if tables:
            raise _foreign(schema, where, tables)
        return []
    try:
        rows = connection.execute(
            f"select version, name, checksum from {schema}.migrations order by version",  # noqa: S608  (a plain name)
            prepare=False,
        ).fetchall()
    except psycopg.errors.UndefinedColumn as error:
        raise _foreign(schema, where, tables) from error
    return [Applied(*row) for row in rows]


def _foreign(schema: str, where: str, tables: set[str]) -> SchemaForeign:
    some = ", ".join(sorted(tables)[:2])
    return SchemaForeign(
        f"schema {schema} of {where} holds tables of another program ({some}); choose another ?schema=",
        schema=schema,
    )


def _there(connection: Connection, schema: str) -> bool:
    """Whether somebody has made the schema for us; then the right to make one is not needed."""
    ask = "select 1 from pg_catalog.pg_namespace where nspname = %s"
    return connection.execute(ask, (schema,), prepare=False).fetchone() is not None


def migrate(connection: Connection, schema: str, where: str, qualify: Callable[[str], str]) -> list[str]:
    """Apply what is missing, all of it in one transaction; others who migrate meanwhile wait and then find it done."""
    done: list[str] = []
    with connection.transaction():
        connection.execute(
            "select set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)"
        )
        connection.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"tidemill migrate {schema}",))
        have = applied(connection, schema, where)
        waiting = migrations.pending(migrations.load("postgres"), have, where)
        if not have and waiting:
            if not _there(connection, schema):
                connection.execute(f"create schema {schema}", prepare=False)
            connection.execute(qualify(migrations.ledger("postgres")), prepare=False)
        for migration in waiting:
            connection.execute(qualify(migration.sql), prepare=False)
            connection.execute(
                f"insert into {schema}.migrations(version, name, checksum) values (%s, %s, %s)",  # noqa: S608  (a plain name)
                (migration.version, migration.name, migration.checksum),
                prepare=False,
            )
            done.append(migration.label)
        if not have and waiting:
            connection.execute(
                f"insert into {schema}.meta(key, value) values ('installation', %s)",  # noqa: S608  (a plain name)
                (str(new_id()),),
                prepare=False,
            )
    return done
