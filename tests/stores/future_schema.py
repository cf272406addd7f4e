"""A database migrated by a future release."""

from __future__ import annotations

from tidemill.stores.open import open_store
from tidemill.stores.sql import migrations
from tidemill.stores.sql.migrations import Migration

_load = migrations.load


def extra(dialect: str, *, serves: int) -> Migration:
    """Return a migration with the next number that adds a column and a table, and serves code from version ``serves`` on."""
    number = len(_load(dialect)) + 1
    prefix = "tidemill." if dialect == "postgres" else "tidemill_"
    kind = "expand" if serves < number else "contract"
    sql = (
        f"-- {kind}: for a test\n-- serves: {serves}\n\n"
        f"alter table {prefix}workers add column zone text;\n"
        f"create table {prefix}later(id integer primary key){'' if dialect == 'postgres' else ' strict'};\n"
    )
    return Migration(number, "later", sql)


def migrate_to_the_future(url: str, *, serves: int | None = None) -> str:
    """Apply the extra migration as a future release would; return its label. By default, it serves this code."""
    dialect = "postgres" if url.startswith("postgres") else "sqlite"
    step = extra(dialect, serves=len(_load(dialect)) if serves is None else serves)

    def load(dialect: str) -> tuple[Migration, ...]:
        return (*_load(dialect), step)

    setattr(migrations, "load", load)  # noqa: B010  (temporarily replaces a function of the module)
    try:
        store = open_store(url)
        try:
            store.migrate()
        finally:
            store.close()
    finally:
        setattr(migrations, "load", _load)  # noqa: B010
    return step.label
