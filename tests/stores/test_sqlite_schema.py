"""Tests of creating, migrating and checking the tables of an SQLite file."""

from __future__ import annotations

import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.sqlite_kit import EVERY, one_sentence, open_file, put

from tidemill.errors import SchemaForeign, SchemaTooNew, StoreCorrupt
from tidemill.stores.sql import migrations, named_queries
from tidemill.stores.sql.migrations import Migration
from tidemill.stores.sql.sqlite.connection import split
from tidemill.stores.sql.sqlite.session import FileSession

KNOWN = migrations.load("sqlite")
LABELS = [migration.label for migration in KNOWN]
ONLY_POSTGRES = {
    # PostgreSQL releases limits in the same statement; SQLite runs a separate statement.
    "finish": frozenset({"counted"}),
    # Outside a transaction, such a statement does not wait for a synchronous standby, which SQLite does not have.
    **dict.fromkeys(("beat", "log", "renew", "report", "start", "write_streams"), frozenset({"alone"})),
}
"""Flags of statements that do not apply to SQLite."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def tables(path: Path) -> set[object]:
    return {name for (name,) in ask(path, "select name from sqlite_master where type = 'table'")}


def test_both_dialects_have_the_same_queries_and_migrations() -> None:
    ours, theirs = named_queries.load("sqlite"), dict(named_queries.load("postgres"))
    for name in ("step", "step_done", "step_handoff", "claim_counted", "deal"):
        # One statement that writes to several tables, which SQLite does not support.
        del theirs[name]
    for name in ("finish_tied", "count_ends", "lock_ends"):
        # One statement counts the ends of a batch; SQLite counts row by row.
        del theirs[name]
    # SQLite's wake-ups do not use the database.
    del theirs["wake"]
    # These use fewer arrays, which SQLite does not have.
    del theirs["enqueue_alike"], theirs["enqueue_one"]
    assert set(ours) == set(theirs)
    for name, query in ours.items():
        other = theirs[name]
        assert (query.takes, query.items, query.gives) == (other.takes, other.items, other.gives), name
        assert query.optional == other.optional - ONLY_POSTGRES.get(name, frozenset()), name
    assert [migration.label for migration in migrations.load("postgres")] == LABELS


def test_the_first_verb_migrates_a_new_file(path: Path) -> None:
    store = open_file(path)
    put(store)
    status = store.schema()
    assert (status.version, status.pending) == (status.wanted, ())
    assert ask(path, "select version from tidemill_migrations") == [
        (migration.version,) for migration in KNOWN
    ]
    assert len(ask(path, "select value from tidemill_meta where key = 'installation'")) == 1
    store.close()


def test_a_second_migration_applies_nothing(path: Path) -> None:
    store = open_file(path)
    assert store.schema().pending == tuple(LABELS)
    assert store.migrate() == LABELS
    before = ask(path, "select * from tidemill_migrations")
    assert store.migrate() == []
    put(store)
    assert store.migrate() == []
    assert ask(path, "select * from tidemill_migrations") == before
    store.close()


def test_the_first_verb_migrates_an_older_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "load", lambda dialect: KNOWN[:1])
    store = open_file(path)
    store.migrate()
    assert store.schema().version == 1
    store.close()
    monkeypatch.undo()
    store = open_file(path)
    assert store.schema().pending == tuple(LABELS[1:])
    put(store)
    assert store.schema().pending == ()
    store.close()


def test_a_newer_file_is_refused_and_unchanged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer = Migration(
        len(KNOWN) + 1, "later", "-- expand: more\ncreate table tidemill_later(a integer) strict;\n"
    )
    monkeypatch.setattr(migrations, "load", lambda dialect: (*KNOWN, newer))
    store = open_file(path)
    put(store)
    store.close()
    monkeypatch.undo()
    store = open_file(path)
    for act in (lambda: put(store), store.check, store.schema, store.migrate):
        with pytest.raises(SchemaTooNew, match="pip install --upgrade") as raised:
            act()
        one_sentence(raised.value)
    store.close()
    assert "tidemill_later" in tables(path)


def test_check_detects_a_file_migrated_by_newer_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_file(path)
    store.check()
    newer = Migration(
        len(KNOWN) + 1, "later", "-- expand: more\ncreate table tidemill_later(a integer) strict;\n"
    )
    monkeypatch.setattr(migrations, "load", lambda dialect: (*KNOWN, newer))
    other = open_file(path)
    assert other.migrate() == [newer.label]
    other.close()
    monkeypatch.undo()
    with pytest.raises(SchemaTooNew):
        store.check()
    store.close()


def test_changed_migrations_are_refused(path: Path) -> None:
    store = open_file(path)
    put(store)
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("update tidemill_migrations set checksum = 'x' where version = 1")
    with pytest.raises(StoreCorrupt, match=LABELS[0]):
        put(open_file(path))


def a_foreign_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for name in ("invoices", "customers", "orders"):
            connection.execute(f"create table {name}(id integer primary key)")
        connection.execute("insert into customers values (7)")


def test_a_file_of_another_program_is_refused_and_unchanged(path: Path) -> None:
    a_foreign_file(path)
    before = path.read_bytes()
    store = open_file(path)
    for act in (lambda: put(store), store.check, store.lanes):
        with pytest.raises(SchemaForeign, match="customers, invoices") as raised:
            act()
        text = one_sentence(raised.value)
        assert "another file" in text
        assert "?shared=1" in text
        assert "tidemill db migrate" in text
    assert store.schema().version == 0
    store.close()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["jobs.db"]


@pytest.mark.parametrize("way", ["shared", "migrate"])
def test_tables_can_be_added_to_a_file_of_another_program(path: Path, way: str) -> None:
    a_foreign_file(path)
    store = open_file(path, shared="1") if way == "shared" else open_file(path)
    if way == "migrate":
        assert store.migrate() == LABELS
    put(store)
    store.close()
    assert ask(path, "select id from customers") == [(7,)]
    # The file now contains Tidemill's tables, so no option is needed.
    store = open_file(path)
    assert sum(store.count(EVERY).values()) == 1
    store.close()


def test_every_table_is_prefixed_and_strict(path: Path) -> None:
    store = open_file(path)
    store.migrate()
    store.close()
    rows = ask(path, "select name, strict from pragma_table_list where schema = 'main' and type = 'table'")
    ours = {name: strict for name, strict in rows if not str(name).startswith("sqlite_")}
    assert all(str(name).startswith("tidemill_") for name in ours)
    assert set(ours.values()) == {1}


PARTITIONED = {"archive", "archive_default"}


def test_both_dialects_have_the_same_tables_and_columns(path: Path) -> None:
    def columns(sql: str, prefix: str) -> dict[str, set[str]]:
        columns_of: dict[str, set[str]] = {}
        for statement in split(sql.replace(prefix, "")):
            lines = [line.strip() for line in statement.splitlines() if not line.startswith("--")]
            first = next(iter(lines), "")
            if first.startswith("create table "):
                words = (line.split()[0].rstrip(",") for line in lines[1:] if line and line[0].islower())
                keywords = {"primary", "check", "with"}
                columns_of[first.split()[2].partition("(")[0]] = {
                    word for word in words if word not in keywords
                }
        return columns_of

    for ours, theirs in zip(KNOWN, migrations.load("postgres"), strict=True):
        mine, other = columns(ours.sql, "tidemill_"), columns(theirs.sql, "tidemill.")
        # A constraint that PostgreSQL changes in place is changed here by moving the rows into a new table.
        mine = {name: words for name, words in mine.items() if not name.endswith("_new")}
        # Partitions take their columns from the table that they divide.
        other = {name: words for name, words in other.items() if words or name not in PARTITIONED}
        assert {
            name: {word for word in words if "vacuum" not in word} for name, words in other.items()
        } == mine


def test_a_trigger_is_split_as_one_statement() -> None:
    script = "-- a\ncreate table t(a);\ncreate trigger x before delete on t\n  begin select 1; select 2; end;\n-- end\n"
    assert [part.split()[-1] for part in split(script)] == ["t(a);", "end;"]


def migrate_at_once(path: str, gate: str, number: int) -> None:
    """Run one of several processes that open the same empty file."""
    store = open_file(path)
    while not Path(gate).exists():
        pass
    put(store, number)
    store.close()


@pytest.mark.long
def test_concurrent_migrations_apply_each_step_once(tmp_path: Path, path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    gate = tmp_path / "gate"
    processes = [spawn.Process(target=migrate_at_once, args=(str(path), str(gate), 5)) for _ in range(2)]
    for process in processes:
        process.start()
    gate.touch()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    store = open_file(path)
    assert sum(store.count(EVERY).values()) == 10
    assert ask(path, "select key from tidemill_meta order by key") == [("installation",), ("serves",)]
    store.close()


def test_a_session_that_fails_to_open_closes_its_connection(path: Path) -> None:
    a_foreign_file(path)
    store = open_file(path)
    with pytest.raises(SchemaForeign):
        put(store)
    session = store._db._session  # type: ignore[attr-defined]
    assert isinstance(session, FileSession)
    assert session._writer is None
    store.close()
