"""Migrations: numbered SQL files, applied in order, once, by one process at a time, and never changed afterwards.

A file is named ``NNNN_name.sql`` and its first line says whether it expands or contracts the schema, so that version N and
N − 1 of the code can run side by side. The database keeps each one's number, name and checksum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from tidemill.errors import SchemaOutdated, SchemaTooNew, StoreCorrupt
from tidemill.stores.base import SchemaStatus

_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"


@dataclass(frozen=True, slots=True)
class Applied:
    """What a database says it has."""

    version: int
    name: str
    checksum: str


@lru_cache
def _files(dialect: str) -> tuple[Migration, ...]:
    folder = resources.files(f"tidemill.stores.sql.{dialect}") / "migrations"
    found = [
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in folder.iterdir()
        if (match := _NAME.match(file.name))
    ]
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(len(found))):
        raise StoreCorrupt(f"the {dialect} migrations are not numbered 0, 1, 2, … without a gap")
    return tuple(found)


def load(dialect: str) -> tuple[Migration, ...]:
    """All migrations of a dialect in order; a gap or a doubled number is a defect of the package."""
    return _files(dialect)[1:]


def ledger(dialect: str) -> str:
    """The SQL that makes the table in which migrations are recorded."""
    return _files(dialect)[0].sql


def script(dialect: str) -> str:
    """Everything as one SQL text that leaves an empty database as ``migrate`` would, for a tool of one's own."""
    prefix = "tidemill." if dialect == "postgres" else "tidemill_"
    parts = [
        "begin;",
        *(["create schema if not exists tidemill;"] if dialect == "postgres" else []),
        ledger(dialect),
    ]
    for step in load(dialect):
        facts = f"{step.version}, '{step.name}', '{step.checksum}'"  # of our own files: nothing needs quoting
        parts += [step.sql, f"insert into {prefix}migrations(version, name, checksum) values ({facts});"]  # noqa: S608
    random = "gen_random_uuid()::text" if dialect == "postgres" else "lower(hex(randomblob(16)))"
    parts += [f"insert into {prefix}meta(key, value) values ('installation', {random});", "commit;"]  # noqa: S608
    return "\n\n".join(part.strip() for part in parts) + "\n"


def pending(known: Sequence[Migration], applied: Sequence[Applied], where: str) -> list[Migration]:
    """What is still to be applied; an error when the database was made by newer or by other code."""
    if len(applied) > len(known):
        raise SchemaTooNew(
            f"the schema of {where} has version {applied[-1].version}, this Tidemill knows {len(known)}; "
            "install the newer Tidemill that made it (pip install --upgrade tidemill)",
            version=applied[-1].version,
            wanted=len(known),
        )
    for migration, done in zip(known, applied, strict=False):
        if (migration.version, migration.checksum) != (done.version, done.checksum):
            raise StoreCorrupt(
                f"migration {migration.label} of {where} is not the one that was applied as {done.version:04d}_{done.name}; "
                "the files of this installation or the database's own table of migrations were changed",
                version=migration.version,
            )
    return list(known[len(applied) :])


def status(known: Sequence[Migration], applied: Sequence[Applied], where: str) -> SchemaStatus:
    """Where a database stands."""
    waiting = pending(known, applied, where)
    return SchemaStatus(len(applied), len(known), tuple(migration.label for migration in waiting))


def outdated(where: str, state: SchemaStatus) -> SchemaOutdated:
    """The error that names the command."""
    what = "has no Tidemill tables yet" if state.version == 0 else f"has schema version {state.version}"
    return SchemaOutdated(
        f"{where} {what}, this Tidemill needs version {state.wanted}; run: tidemill db migrate --store '{where}'",
        version=state.version,
        wanted=state.wanted,
    )
