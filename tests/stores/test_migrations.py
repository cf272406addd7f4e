"""Migrations: applied once, by one process at a time, in both dialects to the same tables, and to exactly what is written down.

With TIDEMILL_REWRITE=1 a stale golden schema is rewritten instead of refused.
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

import psycopg
import pytest
from tests.stores.schema_dump import postgres_columns, postgres_dump, sqlite_columns, sqlite_dump

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import Rule
from tidemill.ids import new_id
from tidemill.stores.open import open_store
from tidemill.stores.sql import migrations
from tidemill.testing.postgres import TestPostgres

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden"
REWRITE = "TIDEMILL_REWRITE=1 python3 dev.py test tests/stores/test_migrations.py"
PATIENCE = 60.0
DIALECTS = ["postgres", "sqlite"]

ONE_SIDED: dict[str, set[str]] = {}
"""Columns that only one dialect has, by table; none so far."""

MIGRATE = """
import sys
from tidemill.stores.open import open_store
store = open_store(sys.argv[1])
print(*store.migrate(), flush=True)
store.close()
"""


@pytest.fixture(scope="module")
def migrated(postgres: TestPostgres) -> Iterator[str]:
    """A PostgreSQL database that was just migrated and not touched since."""
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
    """The address of a new and empty database of each dialect."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("fresh_postgres_url"))


def labels(url: str) -> list[str]:
    return [step.label for step in migrations.load(url.partition(":")[0].removesuffix("ql"))]


def compare(name: str, found: str) -> None:
    """Hold a schema against the one that is written down."""
    path = GOLDEN / name
    if os.environ.get("TIDEMILL_REWRITE") == "1":
        path.write_text(found, encoding="utf-8")
    if not path.exists() or path.read_text(encoding="utf-8") != found:
        print(found)
        pytest.fail(
            f"{path.relative_to(ROOT)} is not what the migrations make; rewrite it with\n    {REWRITE}",
            pytrace=False,
        )


def test_the_migrations_make_the_golden_schema_of_postgresql(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        compare("postgres.sql", postgres_dump(connection))


def test_the_migrations_make_the_golden_schema_of_sqlite(sqlite_file: Path) -> None:
    with closing(sqlite3.connect(sqlite_file)) as connection:
        compare("sqlite.sql", sqlite_dump(connection))


def test_the_script_for_postgresql_makes_what_migrate_makes(fresh_postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as connection:
        connection.execute(migrations.script("postgres").encode())
        assert postgres_dump(connection) == (GOLDEN / "postgres.sql").read_text(encoding="utf-8")
    store = open_store(fresh_postgres_url)
    store.check()
    assert store.migrate() == []
    store.close()


def test_the_script_for_sqlite_makes_what_migrate_makes(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(migrations.script("sqlite"))
        assert sqlite_dump(connection) == (GOLDEN / "sqlite.sql").read_text(encoding="utf-8")
    store = open_store(f"sqlite:///{path}")
    store.check()
    assert store.migrate() == []
    store.close()


def test_another_schema_of_the_same_database_gets_the_same_tables(migrated: str) -> None:
    store = open_store(f"{migrated}?schema=another")
    store.migrate()
    store.close()
    with psycopg.connect(migrated, autocommit=True) as connection:
        twin = postgres_dump(connection, "another")
        connection.execute("drop schema another cascade")
    golden = (GOLDEN / "postgres.sql").read_text(encoding="utf-8")
    assert twin.replace("another.", "tidemill.").split() == golden.split()


def test_both_dialects_have_the_same_tables_with_the_same_columns(migrated: str, sqlite_file: Path) -> None:
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
    assert store.schema() == (len(first), len(first), ())
    store.check()
    store.close()


def test_a_store_can_be_migrated_while_it_is_in_use(new_url: str) -> None:
    store = open_store(new_url, migrate=True)
    store.enqueue([NewJob(new_id(), "t")])
    assert store.migrate() == []
    assert len(store.lanes()) == 1
    store.close()


def test_a_failing_migration_leaves_nothing_behind(
    fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_two_processes_that_migrate_at_once_apply_everything_once(fresh_postgres_url: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", MIGRATE, fresh_postgres_url]
    key = "hashtext('tidemill migrate tidemill')"
    waiting = (
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and l.locktype = 'advisory' and not l.granted"
    )
    with psycopg.connect(fresh_postgres_url, autocommit=True) as gate:
        gate.execute(f"select pg_advisory_lock({key})")  # both stand at the door together
        both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        deadline = time.monotonic() + PATIENCE
        while (row := gate.execute(waiting).fetchone()) is None or row[0] < 2:
            assert time.monotonic() < deadline
        gate.execute(f"select pg_advisory_unlock({key})")
        said = sorted(process.communicate(timeout=PATIENCE)[0].split() for process in both)
        assert [process.returncode for process in both] == [0, 0]
        assert said == [[], labels(fresh_postgres_url)]
        done = gate.execute("select version from tidemill.migrations order by version").fetchall()
        assert [version for (version,) in done] == list(range(1, len(said[1]) + 1))


def test_processes_that_open_one_new_file_at_once_apply_everything_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", MIGRATE, url]
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=PATIENCE)[0].split() for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said == [[], labels(url)]


def test_jobs_with_limits_that_were_pending_before_there_were_gates_stand_behind_them_afterwards(
    new_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [new_id() for _ in range(4)]
    limits = [("one", "é"), (), ("one", "é"), ()]
    load = migrations.load
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "load", lambda dialect: load(dialect)[:3])
        before = open_store(new_url)
        assert len(before.migrate()) == 3
        before.enqueue([NewJob(id, "t", limits=names) for id, names in zip(ids, limits, strict=True)])
        assert before.schema() == (3, 3, ())
        before.close()
    store = open_store(new_url)
    assert store.migrate() == labels(new_url)[3:]
    (gate,), (lane,) = store.gates(), store.lanes()
    assert gate.limits == ("one", "é")
    rules = {"one": Rule("one", max=1)}
    claims = store.claim(ClaimRequest(new_id(), [gate, lane], 10, rules=rules))
    assert [claim.id for claim in claims] == [ids[0], ids[1], ids[3]]
    store.finish([Finish(claim, COMPLETED) for claim in claims])
    assert [claim.id for claim in store.claim(ClaimRequest(new_id(), [gate, lane], 10, rules=rules))] == [
        ids[2]
    ]
    store.close()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_migration_says_first_whether_it_expands_or_contracts(dialect: str) -> None:
    steps = migrations.load(dialect)
    assert steps
    for step in steps:
        assert re.match(r"-- (expand|contract): \S", step.sql), step.label


def test_both_dialects_have_the_same_migrations() -> None:
    assert [step.label for step in migrations.load("postgres")] == [
        step.label for step in migrations.load("sqlite")
    ]
    kinds = [[step.sql[:12] for step in migrations.load(dialect)] for dialect in DIALECTS]
    assert kinds[0] == kinds[1]


def test_an_installation_is_given_a_name_once(new_url: str) -> None:
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


def test_a_store_that_may_migrate_makes_the_tables_before_it_is_checked(fresh_postgres_url: str) -> None:
    store = open_store(fresh_postgres_url, migrate=True)
    try:
        store.check()
        assert store.schema().pending == ()
    finally:
        store.close()
    without = open_store(fresh_postgres_url)
    without.check()
    without.close()
