"""The fault runs, a few cycles each. At full length they are commands: ``python -m tests.faults.kills --help``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from tests.faults import flood, gil, kills, leaders, orphans, outages, sigterm, stops, uncooperative
from tests.faults.checks import judge
from tests.faults.kit import Ground, a_ground, own_ground
from tests.services import go_without

from tidemill.testing.processes import ServiceMissing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at through /proc"),
]


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Ground]:
    with a_ground(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as ground:
        yield ground


@pytest.fixture
def on_postgres(fresh_postgres_url: str, tmp_path: Path) -> Iterator[Ground]:
    with a_ground(fresh_postgres_url, tmp_path) as ground:
        yield ground


@pytest.fixture
def on_own_postgres() -> Iterator[Ground]:
    """A server of its own, which may be stopped and writes down every statement."""
    with ExitStack() as stack:
        try:
            ground = stack.enter_context(own_ground("postgres", **leaders.LOGGED))
        except ServiceMissing as missing:
            go_without("postgres", missing)
        yield ground


def test_kills_lose_nothing_in_a_file(on_sqlite: Ground) -> None:
    assert kills.run(on_sqlite, 3, seed=1).violations == []


def test_kills_lose_nothing_in_a_database(on_postgres: Ground) -> None:
    assert kills.run(on_postgres, 3, seed=2).violations == []


def test_a_flood_loses_nothing_while_runners_die_and_connections_break(on_own_postgres: Ground) -> None:
    assert flood.run(on_own_postgres, 2, seed=1).violations == []


def test_a_dead_runner_s_orphans_are_soon_back(on_sqlite: Ground) -> None:
    culprits: set[int] = set()
    delays = orphans.kill_runners(on_sqlite, 1, Random(1), culprits, [])
    assert judge(on_sqlite, culprits=culprits).violations == []
    # The promise is 2 s; here it is only told from waiting for a lease of 30 s to run out, also on a busy machine.
    assert max(delays) < 15


def test_a_zombie_writes_nothing_and_is_stopped(on_sqlite: Ground) -> None:
    assert stops.run(on_sqlite, 2, seed=1).violations == []


def test_a_handler_that_holds_the_interpreter_is_not_taken_for_dead(on_sqlite: Ground) -> None:
    brief: dict[str, object] = {"beat": 0.3, "expiry": 2, "lease_beat": 0.3, "lease_expiry": 1.5}
    assert gil.hold(on_sqlite, 2, seconds=4, settings=brief).violations == []


def test_a_database_that_goes_away_and_comes_back_costs_no_job(on_own_postgres: Ground) -> None:
    assert outages.run(on_own_postgres, 1, seed=1).violations == []


def test_another_leads_soon_after_a_leader_dies(on_own_postgres: Ground) -> None:
    assert leaders.lead(on_own_postgres, 1, seed=1, workers=3, idle=1, settle=0).violations == []


def test_handlers_that_defy_everything_are_gone_after_their_timeout(on_sqlite: Ground) -> None:
    assert uncooperative.run(on_sqlite, 4, seed=1).violations == []


def test_a_stop_under_load_charges_nobody_and_loses_nothing(on_postgres: Ground) -> None:
    assert sigterm.run(on_postgres, 1, seed=1).violations == []
