"""Tests that an archive run may be killed at any point: no job is lost, and none stays in two places."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.faults.archive_kills import both, end_jobs, places, run_archive, victim
from tests.faults.fork_server import ForkServer
from tests.grounds import THOROUGH, new_file, url_of

from tidemill.domain.filters import ALL_TENANTS
from tidemill.testing.conformance.kit import T0

HOUR = timedelta(hours=1)
FEWEST = 40
"""A run passes more failpoints than this, or the test does not reach what it should."""

EVERY = 1 if THOROUGH else 7
"""A short test run kills at every seventh point only."""


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_killed_at_any_point_loses_no_job_and_is_completed_by_the_next(
    kind: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    fork_server: ForkServer,
    record_property: Callable[[str, object], None],
) -> None:
    jobs_url, cold_url = url_of(kind, tmp_path, request), new_file(tmp_path, "cold.db")
    killed = 0
    with both(jobs_url, cold_url) as (jobs, cold):
        for nth in range(1, 1000, EVERY):
            prints = end_jobs(jobs)
            ids = list(prints)
            pin = T0 + 2 * nth * HOUR
            code = fork_server.run(victim, jobs_url, cold_url, pin, nth)
            assert all(places(jobs, cold, ids).values()), f"lost at point {nth}"
            # An hour later the lease of the killed process has expired.
            run_archive(jobs, cold, pin + HOUR)
            after = places(jobs, cold, ids)
            assert sorted(tier for tiers in after.values() for tier in tiers) == ["cold"] * 3 + ["other"], nth
            copies = [*jobs.archived(ids, tenant=ALL_TENANTS), *cold.archived(ids, tenant=ALL_TENANTS)]
            assert {copy.id: copy.fingerprint for copy in copies} == prints
            if code == 0:
                break
            assert code == -signal.SIGKILL
            killed += 1
    assert killed * EVERY > FEWEST
    record_property("kills", killed)
