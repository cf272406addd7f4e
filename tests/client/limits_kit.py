"""Helper for the limit tests: claims jobs as a worker does, without running one."""

from __future__ import annotations

from datetime import timedelta

from tidemill.domain.cluster import Worker
from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest
from tidemill.ids import new_id
from tidemill.stores.base import Store


def claim(store: Store, limit: int = 10) -> list[Claim]:
    """Claim from all lanes, with all stored rules."""
    worker = store.register(Worker(new_id(), "w1"), lease=timedelta(hours=1))
    rules = {rule.name: rule for rule in store.rules()}
    lanes = [*store.gates(), *store.lanes()]
    return store.claim(ClaimRequest(worker.id, lanes, limit, rules=rules))
