"""Tests of the archive's monthly partitions in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from tidemill import App, ArchivePolicy
from tidemill.clock import ManualClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivedJob, fingerprint
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.open import open_store


@pytest.fixture
def store(migrated_postgres_url: str) -> Iterator[Store]:
    opened = open_store(migrated_postgres_url)
    yield opened
    opened.close()


def later(months: int) -> datetime:
    """The middle of a month after this one."""
    at = datetime.now(UTC).replace(day=15, hour=0, minute=0, second=0, microsecond=0)
    number = at.year * 12 + at.month - 1 + months
    return at.replace(year=number // 12, month=number % 12 + 1)


def document(at: datetime, tier: str = "archive") -> ArchivedJob:
    """A document whose id is of this instant, of a job that ended an hour later."""
    id = UUID(int=(int(at.timestamp() * 1000) << 80) | 0x7000 << 64 | 0x8000 << 48 | id_tail())
    return ArchivedJob(
        id=id, tenant="default", task="t", queue="q", state=JobState.COMPLETED, token=1, created_at=at,
        finished_at=at + timedelta(hours=1), correlation_id=None, parent_id=None, tier=tier, policy="p", document="{}",
        fingerprint=fingerprint("{}"),
    )  # fmt: skip


_tail = iter(range(1, 10_000))


def id_tail() -> int:
    return next(_tail)


def partitions(url: str) -> dict[str, int]:
    """The number of rows of each partition."""
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        names = connection.execute(
            "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid "
            "where i.inhparent = 'tidemill.archive'::regclass order by 1"
        ).fetchall()
        return {
            name: connection.execute(f"select count(*) from tidemill.{name}".encode()).fetchall()[0][0]
            for (name,) in names
        }


def name_of(at: datetime) -> str:
    return f"archive_{at:%Y_%m}"


def test_months_are_made_ahead_and_hold_their_documents(store: Store, migrated_postgres_url: str) -> None:
    assert store.make_archive_months(now=later(1)) == 3
    assert store.make_archive_months(now=later(1)) == 0
    assert store.make_archive_months(now=later(2)) == 1
    rows = [document(later(months)) for months in (-5, 0, 1, 3, 9)]
    store.put_archive(rows)
    store.put_archive(rows)
    assert partitions(migrated_postgres_url) == {
        "archive_before": 2,
        "archive_default": 1,
        name_of(later(1)): 1,
        name_of(later(2)): 0,
        name_of(later(3)): 1,
        name_of(later(4)): 0,
    }
    assert len(store.archived([row.id for row in rows], tenant=ALL_TENANTS)) == 5


def test_a_new_month_takes_its_documents_from_the_default_partition(
    store: Store, migrated_postgres_url: str
) -> None:
    late = document(later(6))
    store.put_archive([late])
    assert partitions(migrated_postgres_url)["archive_default"] == 1
    store.make_archive_months(now=later(6))
    found = partitions(migrated_postgres_url)
    assert (found["archive_default"], found[name_of(later(6))]) == (0, 1)
    assert store.archived([late.id], tenant=ALL_TENANTS) != []


def test_a_month_at_the_edge_belongs_to_one_partition(store: Store, migrated_postgres_url: str) -> None:
    store.make_archive_months(now=later(1))
    first = later(2).replace(day=1)
    store.put_archive([document(first - timedelta(milliseconds=1)), document(first)])
    found = partitions(migrated_postgres_url)
    assert (found[name_of(later(1))], found[name_of(later(2))]) == (1, 1)


def test_a_month_is_dropped_whole_when_all_its_documents_are_due(
    store: Store, migrated_postgres_url: str
) -> None:
    store.make_archive_months(now=later(1))
    rows = [document(later(months)) for months in (-3, 1, 1, 2, 3)]
    store.put_archive([*rows[:3], replace(rows[3], tier="other"), rows[4]])
    assert store.drop_archive_months("archive", later(1)) == 1  # the documents from before the first month
    cut = later(4)
    assert store.drop_archive_months("archive", cut) == 3
    found = partitions(migrated_postgres_url)
    assert found["archive_before"] == 0
    assert name_of(later(1)) not in found
    assert name_of(later(3)) not in found
    assert found[name_of(later(2))] == 1
    assert store.drop_archive_months("archive", cut) == 0


def test_a_month_with_one_younger_end_stays(store: Store, migrated_postgres_url: str) -> None:
    store.make_archive_months(now=later(1))
    slow = replace(document(later(1)), finished_at=later(5))
    store.put_archive([document(later(1)), slow])
    assert store.drop_archive_months("archive", later(4)) == 0
    assert partitions(migrated_postgres_url)[name_of(later(1))] == 2


def test_a_purge_at_the_end_of_a_month_drops_it(migrated_postgres_url: str) -> None:
    clock = ManualClock(later(0))
    policies = [
        ArchivePolicy("old", max_age=timedelta(days=30)),
        ArchivePolicy("gone", from_tier="archive", to=None, max_age=timedelta(days=90)),
    ]
    with App(migrated_postgres_url, clock=clock) as app:
        app.archive.run(policies)
        app.store.make_archive_months(now=later(1))
        app.store.put_archive([document(later(1)) for _ in range(5)])
        clock.advance(later(3) - later(0))
        assert app.archive.run(policies).archived == 0
        clock.advance(later(5) - later(3))
        assert app.archive.run(policies).archived == 5
        assert name_of(later(1)) not in partitions(migrated_postgres_url)
        (entry,) = [row.entry for row in app.audit.list(tenant="*") if row.entry.action == "jobs.purged"]
        assert entry.after is not None
        assert (entry.after["policy"], entry.after["done"]) == ("gone", 5)
