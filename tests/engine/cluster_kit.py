"""Helpers for the heartbeat and duty tests: workers and a failing store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Worker
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, JobRow, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store

SECOND = timedelta(seconds=1)


class Line:
    """A proxy of a real store that counts calls and can make some or all of them fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[str] = []
        self.broken: Callable[[str, tuple[Any, ...]], BaseException | None] = lambda verb, given: None

    def cut(self) -> None:
        """Make every call fail."""
        self.broken = lambda verb, given: StoreUnavailable("the line is cut")

    def mend(self) -> None:
        self.broken = lambda verb, given: None

    @property
    def store(self) -> Store:
        """The proxy, typed as a store."""
        return cast(Store, self)

    def __getattr__(self, verb: str) -> Any:
        target = getattr(self._store, verb)

        def call(*given: Any, **named: Any) -> Any:
            self.calls.append(verb)
            error = self.broken(verb, given)
            if error is not None:
                raise error
            return target(*given, **named)

        return call if callable(target) else target


def a_worker() -> Worker:
    return Worker(new_id(), "a worker")


def enqueue(store: Store, count: int = 1, **fields: Any) -> list[UUID]:
    return [answer.id for answer in store.enqueue([NewJob(new_id(), "work", **fields) for _ in range(count)])]


def claim(store: Store, worker: UUID, limit: int = 1000, *, start: bool = True) -> list[Claim]:
    claims = store.claim(ClaimRequest(worker, store.lanes(), limit, start=start))
    if start:
        store.start(claims)  # the claim does not start a job that has crashed before
    return claims


def the_jobs(store: Store, ids: Collection[UUID]) -> list[JobRow]:
    return store.get(ids, tenant=ALL_TENANTS)


def job(store: Store, id: UUID) -> JobRow:
    (found,) = the_jobs(store, [id])
    return found


def eventually(condition: Callable[[], object], within: float = 20.0) -> float:
    """Wait until the condition holds, and return the seconds that took."""
    clock = SystemClock()
    began = clock.monotonic()
    while not condition():
        if clock.monotonic() - began > within:
            raise AssertionError(f"not within {within} seconds")
        threading.Event().wait(0.005)
    return clock.monotonic() - began
