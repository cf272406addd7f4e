"""An archive run over two tiers and two stores that kills its own process at one of its failpoints."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import cast
from uuid import UUID

from tests.faults.failpoints import Failpoints, give_points

from tidemill.archive.places import StorePlace
from tidemill.archive.run import ArchiveRun, ArchiveRunner
from tidemill.clock import SystemClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivePolicy, Selection, Selector
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.store import SqlStore
from tidemill.testing.conformance.kit import a_line, bring, claim_one, finish_all, put_one

POLICIES = (
    ArchivePolicy("failed", ["failed"], max_age=0, tier="other", batch=2),
    ArchivePolicy("warm", max_age=0, tier="warm", batch=2),
    ArchivePolicy("cool", max_age=0, from_tier="warm", tier="cool", batch=2),
    ArchivePolicy("cold", max_age=0, from_tier="cool", tier="cold", to="cold", batch=2),
)
"""From the live tables to a tier, within the store to another tier, and from there to another store."""


@contextmanager
def both(jobs_url: str, cold_url: str) -> Iterator[tuple[Store, Store]]:
    """Open the store of the jobs and the store of the last tier."""
    jobs = open_store(jobs_url)
    cold = open_store(cold_url)
    try:
        yield jobs, cold
    finally:
        jobs.close()
        cold.close()


def end_jobs(store: Store) -> dict[UUID, str]:
    """Bring some jobs to their ends, and return the expected fingerprints of their documents."""
    jobs = [bring(store, state) for state in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED)]
    claim = claim_one(store, put_one(store))
    store.log([a_line(claim, "one")])
    finish_all(store, [claim])
    ids = {job.id for job in jobs} | {claim.id}
    documents = store.archivable(Selection(Selector(), limit=10_000), policy="", tier="")
    return {document.id: document.fingerprint for document in documents if document.id in ids}


def run_archive(jobs: Store, cold: Store, pin: datetime) -> ArchiveRun:
    """Perform one archive run at this time."""

    def place_of(name: str) -> StorePlace:
        return StorePlace(cold if name == "cold" else jobs)

    runner = ArchiveRunner(jobs, place_of, SystemClock(), by="test", pin=pin)
    return runner.run(POLICIES, limit=1000, budget=timedelta(minutes=10))


def passes(points: Failpoints, act: Callable[[], None], nth: int) -> None:
    """Perform an action when the n-th failpoint of any kind is passed."""

    def look(_: object) -> None:
        if len(points.passed) == nth:
            act()

    points.watching = look


def die() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def victim(jobs_url: str, cold_url: str, pin: datetime, nth: int) -> None:
    """Archive, and die at the n-th failpoint."""
    points = Failpoints()
    with both(jobs_url, cold_url) as (jobs, cold):
        for store in (jobs, cold):
            give_points(cast(SqlStore, store), points)
        passes(points, die, nth)
        run_archive(jobs, cold, pin)


def places(jobs: Store, cold: Store, ids: Sequence[UUID]) -> dict[UUID, list[str]]:
    """Where each job is: ``live``, or the tier of a sound copy."""
    found: dict[UUID, list[str]] = {id: [] for id in ids}
    for job in jobs.get(ids, tenant=ALL_TENANTS):
        found[job.id].append("live")
    for store in (jobs, cold):
        for copy in store.archived(ids, tenant=ALL_TENANTS):
            assert copy.sound
            found[copy.id].append(copy.tier)
    return found
