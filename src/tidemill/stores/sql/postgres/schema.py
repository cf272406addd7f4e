"""The schema of one PostgreSQL database, and its migration under a lock."""

from __future__ import annotations

from collections.abc import Callable

import psycopg

from tidemill.errors import SchemaForeign
from tidemill.ids import new_id
from tidemill.stores.sql import migrations
from tidemill.stores.sql.migrations import Applied, Installed
from tidemill.stores.sql.postgres.prepared_connection import Connection


def installed(connection: Connection, schema: str, where: str) -> Installed:
    """The migrations of this database, and the oldest code it serves.

    A schema with tables but without a migrations table belongs to another program.
    """
    tables = {
        name
        for (name,) in connection.execute(
            "select tablename from pg_catalog.pg_tables where schemaname = %s", (schema,), prepare=False
        ).fetchall()
    }
    if "migrations" not in tables:
        if tables:
            raise _foreign(schema, where, tables)
        return Installed()
    try:
        rows = connection.execute(
            f"select version, name, checksum from {schema}.migrations order by version",  # noqa: S608  (a plain name)
            prepare=False,
        ).fetchall()
    except psycopg.errors.UndefinedColumn as error:
        raise _foreign(schema, where, tables) from error
    if not rows:
        return Installed()
    served = connection.execute(
        f"select value from {schema}.meta where key = 'serves'",  # noqa: S608  (a plain name)
        prepare=False,
    ).fetchone()
    return Installed([Applied(*row) for row in rows], None if served is None else int(served[0]))


def _foreign(schema: str, where: str, tables: set[str]) -> SchemaForeign:
    some = ", ".join(sorted(tables)[:2])
    return SchemaForeign(
        f"schema {schema} of {where} contains tables of another program ({some}); choose another ?schema=",
        schema=schema,
    )


def _there(connection: Connection, schema: str) -> bool:
    """Whether the schema exists; then the privilege to create one is not needed."""
    ask = "select 1 from pg_catalog.pg_namespace where nspname = %s"
    return connection.execute(ask, (schema,), prepare=False).fetchone() is not None


def migrate(connection: Connection, schema: str, where: str, qualify: Callable[[str], str]) -> list[str]:
    """Apply the pending migrations in one transaction; concurrent migrators wait and then find nothing to do."""
    done: list[str] = []
    with connection.transaction():
        connection.execute(
            "select set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)"
        )
        connection.execute("select pg_advisory_xact_lock(hashtext(%s))", (f"tidemill migrate {schema}",))
        have, wanted = installed(connection, schema, where), migrations.load("postgres")
        waiting = migrations.pending(wanted, have, where)
        if not have.steps and waiting:
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
        if not have.steps and waiting:
            connection.execute(
                f"insert into {schema}.meta(key, value) values ('installation', %s)",  # noqa: S608  (a plain name)
                (str(new_id()),),
                prepare=False,
            )
        if waiting:
            connection.execute(
                f"insert into {schema}.meta(key, value) values ('serves', %s)"  # noqa: S608  (a plain name)
                " on conflict (key) do update set value = excluded.value",
                (str(migrations.oldest_served(wanted)),),
                prepare=False,
            )
    return done
