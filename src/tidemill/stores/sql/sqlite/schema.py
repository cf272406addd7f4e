"""The tables of one SQLite file: ownership, version and migration."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from tidemill.errors import SchemaForeign
from tidemill.ids import new_id
from tidemill.stores.sql import migrations
from tidemill.stores.sql.migrations import Applied, Installed
from tidemill.stores.sql.sqlite.connection import LockTimeout, split
from tidemill.stores.sql.sqlite.values import microseconds

_LEDGER = "tidemill_migrations"


def installed(connection: sqlite3.Connection) -> Installed:
    """The migrations of this file, and the oldest code it serves."""
    if _LEDGER not in tables(connection):
        return Installed()
    rows = connection.execute("select version, name, checksum from tidemill_migrations order by version")
    steps = [Applied(*row) for row in rows]
    if not steps:
        return Installed()
    row = connection.execute("select value from tidemill_meta where key = 'serves'").fetchone()
    return Installed(steps, None if row is None else int(row[0]))


def tables(connection: sqlite3.Connection) -> list[str]:
    """The names of all tables in the file except SQLite's own."""
    rows = connection.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
    )
    return sorted(name for (name,) in rows)


def refuse_foreign(connection: sqlite3.Connection, path: str) -> None:
    """Raise an error if the file belongs to another program: it has tables, but no migrations table of Tidemill."""
    present = tables(connection)
    if present and _LEDGER not in present:
        some = ", ".join(present[:2])
        raise SchemaForeign(
            f"{path} contains tables of another program ({some}); give another file, or share this one: "
            f"add ?shared=1 to the URL, or run tidemill db migrate",
            path=path,
        )


def migrate(connection: sqlite3.Connection, path: str, now: datetime, patience: LockTimeout) -> list[str]:
    """Apply the pending migrations in one transaction; concurrent migrators wait and then find nothing to do."""
    patience(lambda: connection.execute("begin immediate"))
    try:
        have, wanted = installed(connection), migrations.load("sqlite")
        waiting = migrations.pending(wanted, have, path)
        if not have.steps and waiting:
            for statement in split(migrations.ledger("sqlite")):
                connection.execute(statement)
        for migration in waiting:
            for statement in split(migration.sql):
                connection.execute(statement)
            connection.execute(
                "insert into tidemill_migrations(version, name, checksum, applied_at) values (?, ?, ?, ?)",
                (migration.version, migration.name, migration.checksum, microseconds(now)),
            )
        if not have.steps and waiting:
            connection.execute(
                "insert into tidemill_meta(key, value) values ('installation', ?)", (str(new_id()),)
            )
        if waiting:
            connection.execute(
                "insert into tidemill_meta(key, value) values ('serves', ?)"
                " on conflict (key) do update set value = excluded.value",
                (str(migrations.oldest_served(wanted)),),
            )
        patience(lambda: connection.execute("commit"))
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return [migration.label for migration in waiting]
