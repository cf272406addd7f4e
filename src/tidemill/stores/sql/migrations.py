"""Migrations: numbered SQL files, applied in order and never changed.

A file is named ``NNNN_name.sql`` and its first line states whether it expands or contracts the schema. From 0007 on, the line
``-- serves: N`` names the oldest code (by the schema version it was written for) that works with the result. The database
keeps each migration's number, name and checksum, and the highest of these values. Older code compares it with its own
version and starts on a newer schema that still serves it. Only one process migrates at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from tidemill.errors import SchemaOutdated, SchemaTooNew, StoreCorrupt
from tidemill.stores.base import SchemaStatus

_NAME = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_SERVES = re.compile(r"^-- serves: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    """One migration file."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def label(self) -> str:
        return f"{self.version:04d}_{self.name}"

    @property
    def serves(self) -> int:
        """The oldest code that works with the schema after this migration; without a header, only its own version."""
        match = _SERVES.search(self.sql)
        return self.version if match is None else int(match[1])


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration recorded in a database."""

    version: int
    name: str
    checksum: str


class Installed(NamedTuple):
    """The migrations of a database, in order, and the oldest code it serves (None: not recorded)."""

    steps: Sequence[Applied] = ()
    serves: int | None = None


@lru_cache
def _files(dialect: str) -> tuple[Migration, ...]:
    folder = resources.files(f"tidemill.stores.sql.{dialect}") / "migrations"
    migrations = [
        Migration(int(match[1]), match[2], file.read_text("utf-8"))
        for file in folder.iterdir()
        if (match := _NAME.match(file.name))
    ]
    migrations.sort(key=lambda migration: migration.version)
    if [migration.version for migration in migrations] != list(range(len(migrations))):
        raise StoreCorrupt(f"the {dialect} migrations are not numbered 0, 1, 2, … without a gap")
    return tuple(migrations)


def load(dialect: str) -> tuple[Migration, ...]:
    """All migrations of a dialect in order; a gap or a duplicate number is a defect of the package."""
    return _files(dialect)[1:]


def ledger(dialect: str) -> str:
    """The SQL that creates the table of applied migrations."""
    return _files(dialect)[0].sql


def script(dialect: str) -> str:
    """All migrations as one SQL script, equivalent to ``migrate`` on an empty database, for external migration tools."""
    prefix = "tidemill." if dialect == "postgres" else "tidemill_"
    parts = [
        "begin;",
        *(["create schema if not exists tidemill;"] if dialect == "postgres" else []),
        ledger(dialect),
    ]
    for step in load(dialect):
        row = f"{step.version}, '{step.name}', '{step.checksum}'"  # from the package's own files: no quoting needed
        parts += [step.sql, f"insert into {prefix}migrations(version, name, checksum) values ({row});"]  # noqa: S608
    random = "gen_random_uuid()::text" if dialect == "postgres" else "lower(hex(randomblob(16)))"
    meta = f"('installation', {random}), ('serves', '{oldest_served(load(dialect))}')"
    parts += [f"insert into {prefix}meta(key, value) values {meta};", "commit;"]  # noqa: S608
    return "\n\n".join(part.strip() for part in parts) + "\n"


def oldest_served(steps: Iterable[Migration]) -> int:
    """The oldest code that works with a schema that has all these migrations."""
    return max((step.serves for step in steps), default=0)


def pending(migrations: Sequence[Migration], installed: Installed, where: str) -> list[Migration]:
    """The migrations still to apply. Raises an error if the schema does not serve this code or is not Tidemill's."""
    applied, wanted = installed.steps, len(migrations)
    if len(applied) > wanted and (installed.serves is None or installed.serves > wanted):
        raise too_new(where, applied[-1].version, wanted, installed.serves)
    for migration, done in zip(migrations, applied, strict=False):
        if (migration.version, migration.checksum) != (done.version, done.checksum):
            raise StoreCorrupt(
                f"migration {migration.label} of {where} is not the one that was applied as {done.version:04d}_{done.name}; "
                "the files of this installation or the database's migrations table were changed",
                version=migration.version,
            )
    return list(migrations[len(applied) :])


def status(migrations: Sequence[Migration], installed: Installed, where: str) -> SchemaStatus:
    """The schema status of a database."""
    waiting = pending(migrations, installed, where)
    version = len(installed.steps)
    serves = version if installed.serves is None else installed.serves
    return SchemaStatus(version, len(migrations), tuple(migration.label for migration in waiting), serves)


def too_new(where: str, version: int, wanted: int, serves: int | None) -> SchemaTooNew:
    """The error for code that a newer schema does not serve."""
    since = "" if serves is None else f" and serves code from version {serves} on"
    return SchemaTooNew(
        f"the schema of {where} has version {version}{since}, this Tidemill supports {wanted}; "
        "install the newer Tidemill that created it (pip install --upgrade tidemill)",
        version=version,
        wanted=wanted,
        serves=serves,
    )


def outdated(where: str, state: SchemaStatus) -> SchemaOutdated:
    """The error for missing migrations, with the command to run."""
    what = "has no Tidemill tables yet" if state.version == 0 else f"has schema version {state.version}"
    return SchemaOutdated(
        f"{where} {what}, this Tidemill needs version {state.wanted}; run: tidemill db migrate --store '{where}'",
        version=state.version,
        wanted=state.wanted,
    )
