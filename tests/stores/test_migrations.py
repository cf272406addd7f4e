"""Tests of migrations.

With ``TIDEMILL_REWRITE=1``, a stale golden schema is rewritten instead of reported.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from tests.servers.postgres import TestPostgres
from tests.stores.schema_dump import postgres_columns, postgres_dump, sqlite_columns, sqlite_dump

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.limits import Rule, gate_of
from tidemill.ids import new_id
from tidemill.stores.open import open_store
from tidemill.stores.sql import migrations
from tidemill.testing.conformance.kit import asks

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
REWRITE = "TIDEMILL_REWRITE=1 python3 dev.py test tests/stores/test_migrations.py"
PATIENCE = 60.0
DIALECTS = ["postgres", "sqlite"]

ONE_SIDED = {"ends": {"seq"}, "failures": {"seq"}}
"""Columns that only one dialect has, by table.

SQLite folds the journal of ends, and merges failures, in the order of a number. PostgreSQL finds these rows by their place in the table
and needs no number.
"""

MIGRATE = """
import sys
from tidemill.stores.open import open_store
store = open_store(sys.argv[1])
print(*store.migrate(), flush=True)
store.close()
"""


@pytest.fixture(scope="module")
def migrated(postgres: TestPostgres) -> Iterator[str]:
    """Return the URL of a migrated, otherwise unused PostgreSQL database."""
    name = f"golden_{new_id().hex[-12:]}"
    url = postgres.create_database(name)
    store = open_store(url)
    store.migrate()
    store.close()
    yield url
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("golden") / "jobs.db"
    store = open_store(f"sqlite:///{path}")
    store.migrate()
    store.close()
    return path


@pytest.fixture(params=DIALECTS)
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new, empty database of each dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("fresh_postgres_url"))


def labels(url: str) -> list[str]:
    return [step.label for step in migrations.load(url.partition(":")[0].removesuffix("ql"))]


def compare(name: str, schema: str) -> None:
    """Compare a schema with the golden file."""
    path = GOLDEN / name
    if os.environ.get("TIDEMILL_REWRITE") == "1":
        path.write_text(schema, encoding="utf-8")
    if not path.exists() or path.read_text(encoding="utf-8") != schema:
        print(schema)
        pytest.fail(
            f"{path.relative_to(ROOT)} differs from the schema that the migrations create; rewrite it with\n    {REWRITE}",
            pytrace=False,
        )


def test_the_migrations_create_the_golden_schema_of_postgres(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        compare("postgres.sql", postgres_dump(connection))


def test_the_migrations_create_the_golden_schema_of_sqlite(sqlite_file: Path) -> None:
    with closing(sqlite3.connect(sqlite_file)) as connection:
        compare("sqlite.sql", sqlite_dump(connection))


def test_the_postgres_script_creates_the_same_schema_as_migrate(fresh_postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(migrations.script("postgres").encode())
        assert postgres_dump(connection) == (GOLDEN / "postgres.sql").read_text(encoding="utf-8")
    store = open_store(fresh_postgres_url)
    store.check()
    assert store.migrate() == []
    store.close()


def test_the_sqlite_script_creates_the_same_schema_as_migrate(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(migrations.script("sqlite"))
        assert sqlite_dump(connection) == (GOLDEN / "sqlite.sql").read_text(encoding="utf-8")
    store = open_store(f"sqlite:///{path}")
    store.check()
    assert store.migrate() == []
    store.close()


def test_a_second_schema_gets_the_same_tables(migrated: str) -> None:
    store = open_store(f"{migrated}?schema=another")
    store.migrate()
    store.close()
    with psycopg.connect(migrated, autocommit=True) as connection:
        twin = postgres_dump(connection, "another")
        connection.execute("drop schema another cascade")
    golden = (GOLDEN / "postgres.sql").read_text(encoding="utf-8")
    assert twin.replace("another.", "tidemill.").split() == golden.split()


def test_both_dialects_have_the_same_tables_and_columns(migrated: str, sqlite_file: Path) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        ours = postgres_columns(connection)
    with closing(sqlite3.connect(sqlite_file)) as file:
        theirs = {name.removeprefix("tidemill_"): columns for name, columns in sqlite_columns(file).items()}
    assert ours.keys() == theirs.keys()
    differing = {table: ours[table].keys() ^ theirs[table].keys() for table in ours}
    assert {table: columns for table, columns in differing.items() if columns} == ONE_SIDED


def test_migrating_again_changes_nothing(new_url: str) -> None:
    store = open_store(new_url)
    first = store.migrate()
    assert first == labels(new_url)
    assert store.migrate() == []
    assert store.schema()[:3] == (len(first), len(first), ())
    store.check()
    store.close()


def test_a_store_can_be_migrated_while_it_is_in_use(new_url: str) -> None:
    store = open_store(new_url, migrate=True)
    store.enqueue([NewJob(new_id(), "t")])
    assert store.migrate() == []
    assert len(store.lanes()) == 1
    store.close()


def test_a_failed_migration_is_rolled_back(fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = migrations.load("postgres")
    bad = migrations.Migration(len(good) + 1, "bad", "create table tidemill.half(id int); select 1/0;")
    store = open_store(fresh_postgres_url)
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "load", lambda dialect: (*good, bad))
        with pytest.raises(Exception, match="division by zero"):
            store.migrate()
        assert store.schema().version == 0
    with psycopg.connect(fresh_postgres_url) as connection:
        assert connection.execute("select to_regnamespace('tidemill')").fetchone() == (None,)
    assert store.migrate() == [step.label for step in good]
    store.close()


def test_concurrent_migrations_on_postgres_apply_each_step_once(fresh_postgres_url: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", MIGRATE, fresh_postgres_url]
    key = "hashtext('tidemill migrate tidemill')"
    waiting = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and l.locktype = 'advisory' and not l.granted"
    )
    with psycopg.connect(fresh_postgres_url, autocommit=True) as gate:
        # Both processes wait for this lock.
        gate.execute(f"select pg_advisory_lock({key})")
        both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        deadline = time.monotonic() + PATIENCE
        while (row := gate.execute(waiting).fetchone()) is None or row[0] < 2:
            assert time.monotonic() < deadline
        gate.execute(f"select pg_advisory_unlock({key})")
        applied = sorted(process.communicate(timeout=PATIENCE)[0].split() for process in both)
        assert [process.returncode for process in both] == [0, 0]
        assert applied == [[], labels(fresh_postgres_url)]
        done = gate.execute("select version from tidemill.migrations order by version").fetchall()
        assert [version for (version,) in done] == list(range(1, len(applied[1]) + 1))


def test_concurrent_migrations_on_sqlite_apply_each_step_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", MIGRATE, url]
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    applied = sorted(process.communicate(timeout=PATIENCE)[0].split() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert applied == [[], labels(url)]


def insert_as_version_3(url: str, jobs: list[tuple[UUID, str | None]]) -> None:
    """Insert pending jobs with their limits, as the release of schema version 3 did."""
    columns = (
        "tenant, queue, task, priority, attempt, max_attempts, crashes, token, detailed, args, until_claimed"
    )
    values = "'default', 'default', 't', 0, 0, 1, 0, 0, false, '[]', false"
    if url.startswith("postgres"):
        with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.executemany(
                f"insert into tidemill.ready(id, limits, run_at, created_at, {columns})"
                f" values (%s, %s, now(), now(), {values})",
                jobs,
            )
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
        file.executemany(
            f"insert into tidemill_ready(id, limits, run_at, created_at, {columns}) values (?, ?, 1, 1, {values})",
            [(id.bytes, names) for id, names in jobs],
        )


def test_migrating_assigns_pending_jobs_with_limits_to_their_limit_sets(
    new_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [new_id() for _ in range(4)]
    limits = [("one", "é"), (), ("one", "é"), ()]
    load = migrations.load
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "load", lambda dialect: load(dialect)[:3])
        before = open_store(new_url)
        assert len(before.migrate()) == 3
        assert before.schema() == (3, 3, (), 3)
        before.close()
    insert_as_version_3(
        new_url, [(id, gate_of(names) or None) for id, names in zip(ids, limits, strict=True)]
    )
    store = open_store(new_url)
    assert store.migrate() == labels(new_url)[3:]
    (gate,), (lane,) = store.gates(), store.lanes()
    assert gate.limits == ("one", "é")
    rules = {"one": Rule("one", max=1)}
    claims = store.claim(asks(store, new_id(), [gate, lane], 10, rules=rules))
    assert [claim.id for claim in claims] == [ids[0], ids[1], ids[3]]
    store.finish([Finish(claim, COMPLETED) for claim in claims])
    assert [claim.id for claim in store.claim(asks(store, new_id(), [gate, lane], 10, rules=rules))] == [
        ids[2]
    ]
    store.close()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_migration_starts_with_expand_or_contract(dialect: str) -> None:
    steps = migrations.load(dialect)
    assert steps
    for step in steps:
        assert re.match(r"-- (expand|contract): \S", step.sql), step.label


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_migration_since_0007_names_the_oldest_version_it_serves(dialect: str) -> None:
    for step in migrations.load(dialect)[6:]:
        assert re.match(r"-- (expand|contract): .+\n-- serves: \d+\n", step.sql), step.label
        if step.sql.startswith("-- expand"):
            assert step.serves < step.version, step.label


def test_both_dialects_have_the_same_migrations() -> None:
    assert [step.label for step in migrations.load("postgres")] == [
        step.label for step in migrations.load("sqlite")
    ]
    kinds = [[step.sql[:12] for step in migrations.load(dialect)] for dialect in DIALECTS]
    assert kinds[0] == kinds[1]
    served = [[step.serves for step in migrations.load(dialect)] for dialect in DIALECTS]
    assert served[0] == served[1]


def test_an_installation_gets_one_name(new_url: str) -> None:
    store = open_store(new_url)
    store.migrate()
    store.close()
    again = open_store(new_url)
    again.migrate()
    again.close()
    ask = "select value from tidemill{}meta where key = 'installation'"
    if new_url.startswith("sqlite"):
        with closing(sqlite3.connect(new_url.removeprefix("sqlite:///"))) as file:
            rows = file.execute(ask.format("_")).fetchall()
    else:
        with psycopg.connect(new_url) as connection:
            rows = connection.execute(ask.format(".").encode()).fetchall()
    assert len(rows) == 1
    assert rows[0][0]


def test_a_store_opened_with_migrate_creates_its_tables_before_check(fresh_postgres_url: str) -> None:
    store = open_store(fresh_postgres_url, migrate=True)
    try:
        store.check()
        assert store.schema().pending == ()
    finally:
        store.close()
    without = open_store(fresh_postgres_url)
    without.check()
    without.close()
