"""Writing ends that could not be written with the others: again after an outage, or one by one where the store refuses one.

It tries each once and says what came of it; when to try again is the pump's affair.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import ErrorInfo
from tidemill.domain.outcome import Failed
from tidemill.engine.finisher import Settled, settle_as
from tidemill.errors import StoreCorrupt, StoreError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

UNWRITABLE = ErrorInfo("UnwritableEnd", "what this job returned or raised cannot be stored")
"""Stands for the end of a job that the store refuses."""


def is_trouble(error: Exception) -> TypeGuard[StoreError]:
    """Whether the store is at fault, and not what it was to write."""
    return isinstance(error, StoreError) and not isinstance(error, StoreCorrupt)


def write_again(store: Store, settled: Sequence[Settled], at: float) -> frozenset[UUID]:
    """Write ends that may have been written already, when only the answer was lost; those that are really lost."""
    lost = store.finish([item.finish(at) for item in settled])
    if not lost:
        return lost
    found = {job.id: job for job in store.get(lost, tenant=ALL_TENANTS)}
    there = frozenset(
        item.claim.id
        for item in settled
        if item.claim.id in lost
        and (job := found.get(item.claim.id)) is not None
        and job.token == item.claim.token
        and job.state is item.transition.state
    )
    return lost - there


class Sorted(NamedTuple):
    """What came of each: written, or lost among those; or to be written later, some of them replaced."""

    written: list[Settled]
    lost: frozenset[UUID]
    left: list[Settled]


def one_by_one(store: Store, clock: Clock, settled: Sequence[Settled], error: Exception) -> Sorted:
    """The store refused something in a batch for what it holds: no neighbour may suffer for it."""
    _log.error("the store refused a batch of %d ends: %r", len(settled), error)
    written: list[Settled] = []
    lost: set[UUID] = set()
    left: list[Settled] = []
    for item in settled:
        at = clock.monotonic()
        try:
            lost |= store.finish([item.finish(at)])
            written.append(item)
        except Exception as refused:  # noqa: BLE001  (a store may fail at what it is to write in any way)
            if is_trouble(refused):
                left.append(item)
            elif item.error is UNWRITABLE:
                _log.exception("the end of job %s cannot be written at all and is given up", item.claim.id)
                written.append(item)
                lost.add(item.claim.id)
            else:
                _log.exception("the end of job %s cannot be written and is replaced", item.claim.id)
                left.append(settle_as(item.held, Failed(UNWRITABLE, permanent=True), None, at))
    return Sorted(written, frozenset(lost), left)
