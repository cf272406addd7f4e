"""Short fault runs; for longer ones, see ``python -m tests.faults.kills --help``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from tests.faults import (
    clocks,
    failover,
    files,
    flood,
    gil,
    halts,
    kills,
    leaders,
    long_outage,
    orphans,
    outages,
    sigterm,
    stops,
    transactions,
    uncooperative,
)
from tests.faults.checks import judge
from tests.faults.kit import Harness, open_harness, own_harness
from tests.faults.ledger import WHERE
from tests.servers.processes import ServiceMissing
from tests.services import go_without

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc"),
]


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as harness:
        yield harness


@pytest.fixture
def on_postgres(fresh_postgres_url: str, tmp_path: Path) -> Iterator[Harness]:
    with open_harness(fresh_postgres_url, tmp_path) as harness:
        yield harness


@pytest.fixture
def on_own_postgres() -> Iterator[Harness]:
    """Yield a harness on a private server, which may be stopped and logs every statement."""
    with ExitStack() as stack:
        try:
            harness = stack.enter_context(own_harness("postgres", **leaders.LOGGED))
        except ServiceMissing as missing:
            go_without("postgres", missing)
        yield harness


def test_kills_lose_no_job_on_sqlite(on_sqlite: Harness) -> None:
    assert kills.run(on_sqlite, 3, seed=1).violations == []


def test_kills_lose_no_job_on_postgres(on_postgres: Harness) -> None:
    assert kills.run(on_postgres, 3, seed=2).violations == []


def test_kills_and_broken_connections_under_load_lose_no_job(on_own_postgres: Harness) -> None:
    assert flood.run(on_own_postgres, 2, seed=1).violations == []


def test_no_job_is_accepted_into_a_removed_file(on_sqlite: Harness) -> None:
    assert files.run(on_sqlite, 3, seed=1).violations == []


@pytest.fixture
def restored_ledger_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    # The run sets the variable; the fixture restores it.
    monkeypatch.setenv(WHERE, "")


@pytest.mark.usefixtures("restored_ledger_variable")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_transactions_held_across_awaits_are_atomic(store: str, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    assert transactions.run(url, tmp_path, jobs=600, kills=1, seed=1).violations == []


@pytest.mark.usefixtures("restored_ledger_variable")
def test_transactions_held_across_awaits_are_atomic_on_postgres(
    fresh_postgres_url: str, tmp_path: Path
) -> None:
    assert transactions.run(fresh_postgres_url, tmp_path, jobs=600, kills=1, seed=1).violations == []


def test_orphans_of_a_dead_runner_begin_again_soon(on_sqlite: Harness) -> None:
    culprits: set[int] = set()
    delays = orphans.kill_runners(on_sqlite, 1, Random(1), culprits, [])
    assert judge(on_sqlite, culprits=culprits).violations == []
    # The documented bound is 2 s; this only rules out the wait for a lease of 30 s, also on a busy machine.
    assert max(delays) < 15


def test_a_zombie_writes_nothing_and_is_stopped(on_sqlite: Harness) -> None:
    assert stops.run(on_sqlite, 2, seed=1).violations == []


def test_a_halted_supervisor_loses_no_job_and_ctrl_z_is_ignored(on_sqlite: Harness) -> None:
    assert halts.run(on_sqlite, 1, seed=1).violations == []


@pytest.mark.parametrize(
    ("store", "step"), [("sqlite", 3600), ("sqlite", -60), ("postgres", -3600), ("postgres", 60)]
)
def test_a_step_of_the_store_clock_loses_no_job(store: str, step: int) -> None:
    with ExitStack() as stack:
        try:
            harness, set_clock = stack.enter_context(clocks.stepped_harness(store))
        except ServiceMissing as missing:
            go_without(store if store == "sqlite" else "faketime", missing)
        assert clocks.run(harness, set_clock, step, 1).violations == []


def test_a_handler_that_holds_the_gil_keeps_its_lease(on_sqlite: Harness) -> None:
    brief: dict[str, object] = {"beat": 0.3, "expiry": 2, "lease_beat": 0.3, "lease_expiry": 1.5}
    assert gil.hold(on_sqlite, 2, seconds=4, settings=brief).violations == []


def test_a_database_restart_loses_no_job(on_own_postgres: Harness) -> None:
    assert outages.run(on_own_postgres, 1, seed=1).violations == []


def test_workers_keep_their_jobs_during_a_long_outage(
    on_own_postgres: Harness,
) -> None:
    assert long_outage.run(on_own_postgres, 1, seed=1).violations == []


def test_after_a_failover_only_the_current_holder_writes() -> None:
    with ExitStack() as stack:
        try:
            harness = stack.enter_context(failover.paired_harness())
        except ServiceMissing as missing:
            go_without("postgres", missing)
        # All jobs may return to their former worker; the run then reports that it proves nothing.
        violations = failover.run(harness, 3, seed=1).violations
    assert violations == []


def test_another_worker_leads_soon_after_the_leader_dies(on_own_postgres: Harness) -> None:
    assert leaders.lead(on_own_postgres, 1, seed=1, workers=3, idle=1, settle=0).violations == []


def test_uncooperative_handlers_are_killed_at_their_timeout(on_sqlite: Harness) -> None:
    assert uncooperative.run(on_sqlite, 4, seed=1, bound=15).violations == []


def test_a_stop_under_load_charges_and_loses_no_job(on_postgres: Harness) -> None:
    assert sigterm.run(on_postgres, 1, seed=1).violations == []
