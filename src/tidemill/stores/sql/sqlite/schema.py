"""The tables of one SQLite file: whose they are, which version they have, and bringing them up to date."""

from __future__ import annotations

import sqlite3
from datetime import datetime

from tidemill.errors import SchemaForeign
from tidemill.ids import new_id
from tidemill.stores.sql import migrations
from tidemill.stores.sql.migrations import Applied
from tidemill.stores.sql.sqlite.connection import Patience, split
from tidemill.stores.sql.sqlite.values import microseconds

_LEDGER = "tidemill_migrations"


def applied(connection: sqlite3.Connection) -> list[Applied]:
    """The migrations this file has."""
    if _LEDGER not in tables(connection):
        return []
    rows = connection.execute("select version, name, checksum from tidemill_migrations order by version")
    return [Applied(*row) for row in rows]


def tables(connection: sqlite3.Connection) -> list[str]:
    """The names of all tables in the file but SQLite's own."""
    rows = connection.execute(
        "select name from sqlite_master where type = 'table' and name not like 'sqlite\\_%' escape '\\'"
    )
    return sorted(name for (name,) in rows)


def refuse_foreign(connection: sqlite3.Connection, path: str) -> None:
    """Raise if the file is another program's: it has tables, and none of them is our record of migrations."""
    found = tables(connection)
    if found and _LEDGER not in found:
        some = ", ".join(found[:2])
        raise SchemaForeign(
            f"{path} holds tables of another program ({some}); give another file, or let ours live beside them: "
            f"add ?shared=1 to the address, or run tidemill db migrate",
            path=path,
        )


def migrate(connection: sqlite3.Connection, path: str, now: datetime, patience: Patience) -> list[str]:
    """Apply what is missing, all of it in one transaction; others who migrate meanwhile wait and then find it done."""
    patience(lambda: connection.execute("begin immediate"))
    try:
        have = applied(connection)
        waiting = migrations.pending(migrations.load("sqlite"), have, path)
        if not have and waiting:
            for statement in split(migrations.ledger("sqlite")):
                connection.execute(statement)
        for migration in waiting:
            for statement in split(migration.sql):
                connection.execute(statement)
            connection.execute(
                "insert into tidemill_migrations(version, name, checksum, applied_at) values (?, ?, ?, ?)",
                (migration.version, migration.name, migration.checksum, microseconds(now)),
            )
        if not have and waiting:
            connection.execute(
                "insert into tidemill_meta(key, value) values ('installation', ?)", (str(new_id()),)
            )
        patience(lambda: connection.execute("commit"))
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return [migration.label for migration in waiting]
