"""Tests of schema checks and database permissions on PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import NewJob
from tidemill.domain.records import AuditEntry, first_break
from tidemill.domain.states import JobState
from tidemill.errors import SchemaForeign, SchemaOutdated, SchemaTooNew, StoreCorrupt, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

EVERY = JobFilter(ALL_TENANTS)


def put(store: Store, count: int = 1) -> list[Any]:
    return [answer.id for answer in store.enqueue([NewJob(new_id(), "t") for _ in range(count)])]


def one(connection: psycopg.Connection[Any], ask: str) -> Any:
    row = connection.execute(ask.encode()).fetchone()
    return None if row is None else row[0]


def test_an_empty_database_error_includes_the_migrate_command(fresh_postgres_url: str) -> None:
    store = open_store(fresh_postgres_url)
    for verb in (store.check, store.lanes, store.listen):
        with pytest.raises(
            SchemaOutdated, match=r"no Tidemill tables yet.*run: tidemill db migrate --store 'postg"
        ):
            verb()
    store.migrate()
    store.check()
    assert store.lanes() == []
    store.close()


def test_older_newer_and_changed_schemas_raise_different_errors(fresh_postgres_url: str) -> None:
    ours = open_store(fresh_postgres_url)
    ours.migrate()
    ours.close()
    with psycopg.connect(fresh_postgres_url, autocommit=True) as raw:

        def refused(change: str, undo: str, error: type[Exception], words: str) -> None:
            raw.execute(change.encode())
            store = open_store(fresh_postgres_url)
            with pytest.raises(error, match=words):
                store.lanes()
            store.close()
            raw.execute(undo.encode())

        last = one(raw, "select max(version) from tidemill.migrations")
        was = one(raw, f"select checksum from tidemill.migrations where version = {last}")
        refused(
            f"delete from tidemill.migrations where version = {last}",
            f"insert into tidemill.migrations(version, name, checksum) values ({last}, 'operation', '{was}')",
            SchemaOutdated,
            rf"has schema version {last - 1}, .* needs version {last}; run: tidemill db migrate --store 'postgresql://",
        )
        refused(
            "insert into tidemill.migrations(version, name, checksum) values (9999, 'later', 'x');"
            "update tidemill.meta set value = '9999' where key = 'serves'",
            "delete from tidemill.migrations where version = 9999;"
            f"update tidemill.meta set value = '{last}' where key = 'serves'",
            SchemaTooNew,
            rf"has version 9999 and serves code from version 9999 on, this Tidemill supports {last}; .*pip install --upgrade tidemill",
        )
        refused(
            f"update tidemill.migrations set checksum = 'x' where version = {last}",
            f"update tidemill.migrations set checksum = '{was}' where version = {last}",
            StoreCorrupt,
            "is not the one that was applied",
        )
    store = open_store(fresh_postgres_url)
    store.check()
    store.close()


@pytest.mark.parametrize("table", ["orders(id int)", "migrations(id int, batch int)"])
def test_a_schema_with_foreign_tables_is_refused_and_unchanged(fresh_postgres_url: str, table: str) -> None:
    with psycopg.connect(fresh_postgres_url, autocommit=True) as raw:
        raw.execute(f"create schema tidemill; create table tidemill.{table}".encode())
        store = open_store(fresh_postgres_url)
        for verb in (store.check, store.migrate, store.lanes):
            with pytest.raises(
                SchemaForeign, match=r"tables of another program \(\w+\); choose another \?schema="
            ):
                verb()
        store.close()
        assert one(raw, "select count(*) from pg_tables where schemaname = 'tidemill'") == 1


def test_two_installations_in_one_database_are_separate(fresh_postgres_url: str) -> None:
    stores = [open_store(f"{fresh_postgres_url}?schema={name}", migrate=True) for name in ("first", "second")]
    ids = [put(store, count) for store, count in zip(stores, (1, 2), strict=True)]
    assert [store.count(EVERY) for store in stores] == [{JobState.PENDING: 1}, {JobState.PENDING: 2}]
    assert stores[1].get(ids[0], tenant=ALL_TENANTS) == []
    with psycopg.connect(fresh_postgres_url) as raw:
        assert one(raw, "select to_regclass('tidemill.ready')") is None
        installed = "select value from {}.meta where key = 'installation'"
        both = f"{installed.format('first')} union {installed.format('second')}"
        names = f"select count(distinct value) from ({both}) m"
        assert one(raw, names) == 2
    for store in stores:
        store.close()


def test_a_role_without_create_rights_can_migrate_its_own_schema(fresh_postgres_url: str) -> None:
    role = f"plain_{new_id().hex[-12:]}"
    with psycopg.connect(fresh_postgres_url, autocommit=True) as raw:
        raw.execute(f"create role {role} login; create schema tidemill authorization {role}".encode())
        try:
            store = open_store(f"{fresh_postgres_url}?user={role}", migrate=True)
            put(store)
            store.close()
            stranger = open_store(f"{fresh_postgres_url}?user={role}&schema=another")
            with pytest.raises(StoreUnavailable, match=r"denied access \(permission denied .*grant the role"):
                stranger.migrate()
            stranger.close()
        finally:
            raw.execute(f"drop owned by {role} cascade; drop role {role}".encode())


@pytest.mark.parametrize(
    "change",
    [
        "update tidemill.audit set who = 'eve'",
        "delete from tidemill.audit",
        "truncate tidemill.audit",
        "insert into tidemill.audit select * from tidemill.audit on conflict (number) do update set who = 'eve'",
    ],
)
def test_audit_rows_cannot_be_updated_or_deleted(migrated_postgres_url: str, change: str) -> None:
    store = open_store(migrated_postgres_url)
    written = store.record([AuditEntry("ada", "job.cancelled", "job:1", "default")])
    with (
        psycopg.connect(migrated_postgres_url, autocommit=True) as raw,
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"),
    ):
        raw.execute(change.encode())
    assert store.audit(tenant=ALL_TENANTS) == written
    store.close()


@pytest.mark.parametrize(
    ("change", "gaps"),
    [
        ("drop trigger audit_no_truncate on tidemill.audit", ["audit_no_truncate"]),
        ("alter table tidemill.audit disable trigger audit_append_only", ["audit_append_only"]),
        (
            "create or replace function tidemill.refuse_change() returns trigger language plpgsql as $$ begin return old; end $$",
            ["audit_append_only", "audit_no_truncate"],
        ),
    ],
)
def test_removed_and_disabled_triggers_of_the_audit_are_found(
    fresh_postgres_url: str, change: str, gaps: list[str]
) -> None:
    store = open_store(fresh_postgres_url, migrate=True)
    assert store.audit_gaps() == []
    with psycopg.connect(fresh_postgres_url, autocommit=True) as raw:
        raw.execute(change.encode())
    assert store.audit_gaps() == gaps
    store.close()


def test_a_role_with_select_and_insert_can_only_append_to_the_audit(
    fresh_postgres_url: str,
) -> None:
    role = f"plain_{new_id().hex[-12:]}"
    owner = open_store(fresh_postgres_url, migrate=True)
    owner.record([AuditEntry("ada", "job.cancelled", "job:1", "default")])
    with psycopg.connect(fresh_postgres_url, autocommit=True) as raw:
        raw.execute(
            f"create role {role} login; grant usage on schema tidemill to {role};"
            f" grant select on all tables in schema tidemill to {role}; grant insert on tidemill.audit to {role}".encode()
        )
        store = open_store(f"{fresh_postgres_url}?user={role}")
        try:
            store.record([AuditEntry("bob", "job.retried", "job:1", "default")])
            with psycopg.connect(fresh_postgres_url, user=role, autocommit=True) as plain:
                for change in (
                    "update tidemill.audit set who = 'eve'",
                    "delete from tidemill.audit",
                    "truncate tidemill.audit",
                    "alter table tidemill.audit disable trigger all",
                    "set session_replication_role = replica",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        plain.execute(change.encode())
            records = owner.audit(tenant=ALL_TENANTS)
            assert [record.entry.who for record in records] == ["ada", "bob"]
            assert first_break(records) is None
        finally:
            store.close()
            owner.close()
            raw.execute(f"drop owned by {role} cascade; drop role {role}".encode())
