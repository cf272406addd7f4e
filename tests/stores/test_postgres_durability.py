"""Tests of ``?durability=`` and failover, with a real primary and its standby."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.engine.cluster_kit import eventually
from tests.servers.processes import ServiceMissing
from tests.servers.replica import Pair, running_pair
from tests.services import go_without

from tidemill.cli.doctor_server import look_at_server
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.settings import read_settings

WAITING = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"


@pytest.fixture
def pair() -> Iterator[Pair]:
    try:
        with running_pair() as pair:
            yield pair
    except ServiceMissing as missing:
        go_without("postgres", missing)


def durability_of(store: Store) -> tuple[str, str]:
    found = {check: (status, text) for status, check, text in look_at_server(store, store.now())}
    return found["durability"]


def test_an_unknown_durability_names_the_known_ones() -> None:
    with pytest.raises(
        BadSettings, match="unknown durability 'all'; expected one of local, standby, applied"
    ):
        read_settings("postgresql://db/jobs?durability=all")


@pytest.mark.parametrize(
    ("word", "commit"), [("local", "local"), ("standby", "on"), ("applied", "remote_apply")]
)
def test_the_sessions_commit_as_the_durability_says(
    migrated_postgres_url: str, word: str, commit: str
) -> None:
    with closing(open_store(f"{migrated_postgres_url}?durability={word}")) as store:
        server = store.server()
        assert server is not None
        assert (server.durability, server.synchronous_commit) == (word, commit)
        assert server.max_connections > server.connections > 0
        assert (server.in_recovery, server.replay_age) == (False, None)
        status, text = durability_of(store)
        if word == "local":
            assert (status, text) == (
                "ok",
                "an accepted job survives a crash of the server, but not its loss: a standby may lack the last jobs",
            )
        else:
            assert status == "fail"
            assert "synchronous_standby_names is empty" in text


def test_the_durability_holds_behind_a_pooler(pgbouncer_url: str) -> None:
    with (
        closing(open_store(f"{pgbouncer_url}?durability=applied", migrate=True)) as store,
        store.transaction(),
    ):
        connection = store._db._local.connection  # type: ignore[attr-defined]
        assert connection.execute("show synchronous_commit").fetchone() == ("remote_apply",)


def test_stores_without_a_server_have_no_server_status() -> None:
    with closing(MemoryStore()) as store:
        assert store.server() is None
        assert list(look_at_server(store, store.now())) == []


@pytest.mark.long
@pytest.mark.parametrize("word", ["local", "standby"])
def test_a_promotion_loses_accepted_jobs_only_with_local_durability(pair: Pair, word: str) -> None:
    """The standby receives nothing when the primary dies: ``standby`` has accepted nothing since, ``local`` has."""
    pair.wait_for_standby(synchronous=True)
    name = f"t{new_id().hex}"
    pair.primary.create_database(name)
    with closing(open_store(f"{pair.url(name)}?durability={word}", migrate=True)) as store:
        store.migrate()
        jobs = [NewJob(new_id(), "work") for _ in range(20)]
        store.enqueue(jobs[:10])
        assert durability_of(store)[0] == "ok"
        pair.wait_for_receiver()
        pair.halt_receiver()
        accepted, refused = jobs[:10], threading.Event()
        if word == "local":
            for job in jobs[10:]:
                store.enqueue([job])
                accepted = [*accepted, job]
            pair.kill_primary()
        else:
            waiting = threading.Thread(target=_refused, args=(store, jobs[10], refused), name="enqueues")
            waiting.start()
            eventually(lambda: pair.primary.ask(WAITING) == "1")
            pair.kill_primary()
            waiting.join()
            assert refused.is_set()
        with pytest.raises(StoreUnavailable):
            store.lanes()
        pair.promote()
        eventually(lambda: _answers(store))
        kept = {row.id for row in store.get([job.id for job in accepted], tenant=ALL_TENANTS)}
        lost = len(accepted) - len(kept)
        assert lost == (10 if word == "local" else 0)


def _refused(store: Store, job: NewJob, refused: threading.Event) -> None:
    """Enqueue a job, and record that it was not accepted."""
    with contextlib.suppress(StoreUnavailable):
        store.enqueue([job])
        return
    refused.set()


def _answers(store: Store) -> bool:
    try:
        store.enqueue([NewJob(new_id(), "after")])
    except StoreUnavailable:
        return False
    return True
