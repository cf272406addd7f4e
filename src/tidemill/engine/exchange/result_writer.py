"""Writing of results that the store did not accept in a normal batch.

The functions here write results again after an outage, or one by one if the store rejects one of them. They try each
result once. The exchange decides when to try again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple, TypeGuard
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import ErrorInfo, JobRow
from tidemill.domain.outcome import Failed
from tidemill.domain.record import Keep, Record
from tidemill.domain.states import JobState
from tidemill.engine.exchange.finisher import Settled, finishes_of, settle_as
from tidemill.errors import StoreCorrupt, StoreError, TidemillError
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

UNWRITABLE = ErrorInfo("UnwritableEnd", "the result or error of this job cannot be stored")
"""Replaces the result of a job that the store rejects."""


def is_trouble(error: Exception) -> TypeGuard[StoreError]:
    """Whether the store itself failed, rather than rejecting the data."""
    return isinstance(error, StoreError) and not isinstance(error, StoreCorrupt)


def write_again(store: Store, settled: Sequence[Settled], at: float) -> frozenset[UUID]:
    """Write results that may be stored already; return the ids of jobs that are really lost.

    A result is stored already if only the store's answer was lost.
    """
    lost = store.finish(finishes_of(settled, at))
    if not lost:
        return lost
    written = {
        (execution.job_id, execution.number, execution.worker, execution.state)
        for execution in store.executions(lost, tenant=ALL_TENANTS)
    }
    there = frozenset(
        claim.id
        for _, claim, transition, *_ in settled
        if (claim.id, claim.token, claim.worker, transition.execution) in written
    )
    return lost - there - _gone(store, [item for item in settled if item.claim.id in lost])


def _gone(store: Store, settled: Sequence[Settled]) -> frozenset[UUID]:
    """The jobs among these that were completed and left nothing behind: a job that was not written is still stored."""
    ids = {item.claim.id for item in settled if item.keep is Keep.NOTHING}
    if not ids:
        return frozenset()
    return frozenset(ids - {job.id for job in store.get(ids, tenant=ALL_TENANTS)})


class WriteAnswer(NamedTuple):
    """The store's answer to a batch: results that are stored, ids among them that are lost, and results in doubt."""

    written: list[Settled]
    lost: frozenset[UUID]
    doubtful: list[Settled]


def look_up_completed(store: Store, settled: Sequence[Settled], lost: frozenset[UUID]) -> WriteAnswer:
    """Find out which jobs that the store reports as lost were completed by a transaction of their user.

    If the handler did anything but return after that, its own result is replaced: the job stays completed.
    """
    unsure = [item for item in settled if item.held.completes and item.claim.id in lost]
    if not unsure:
        return WriteAnswer(list(settled), lost, [])
    try:
        found = {job.id: job for job in store.get([item.claim.id for item in unsure], tenant=ALL_TENANTS)}
    except StoreError:
        left = {item.claim.id for item in unsure}
        return WriteAnswer([item for item in settled if item.claim.id not in left], lost - left, unsure)
    completed = {item.claim.id for item in unsure if _is_completed(found.get(item.claim.id), item)}
    written = [
        item._replace(transition=COMPLETED, error=None) if item.claim.id in completed else item
        for item in settled
    ]
    return WriteAnswer(written, lost - completed, [])


def _is_completed(job: JobRow | None, item: Settled) -> bool:
    """Whether the claim of this result completed the job. A result that says otherwise is logged."""
    if job is None and item.held.record is Record.NONE:
        return True  # it completed, and left nothing behind
    if job is None or job.token != item.claim.token or job.state is not JobState.COMPLETED:
        return False
    if item.transition is not COMPLETED:
        _log.warning(
            "job %s was completed by its own transaction; how its handler ended is not recorded: %s",
            item.claim.id,
            item.transition.reason or item.transition.state,
        )
    return True


class SortedResults(NamedTuple):
    """The fate of each result: written (some of these lost), or left to be written later (some of these replaced)."""

    written: list[Settled]
    lost: frozenset[UUID]
    left: list[Settled]


def one_by_one(store: Store, clock: Clock, settled: Sequence[Settled], error: Exception) -> SortedResults:
    """Write the results one by one, so that one rejected result does not affect the rest of the batch."""
    _log.error("the store rejected a batch of %d results: %r", len(settled), error)
    written: list[Settled] = []
    lost: set[UUID] = set()
    left: list[Settled] = []
    for item in settled:
        at = clock.monotonic()
        try:
            lost |= store.finish(finishes_of([item], at))
            written.append(item)
        except Exception as refused:  # noqa: BLE001  (a store may raise any exception for data it cannot write)
            if is_trouble(refused):
                left.append(item)
            elif item.error is not None and item.error.type == UNWRITABLE.type:
                _log.exception("cannot write the result of job %s; giving up", item.claim.id)
                written.append(item)
                lost.add(item.claim.id)
            else:
                _log.exception("cannot write the result of job %s; recording an error instead", item.claim.id)
                left.append(settle_as(item.held, Failed(_unwritable(refused), permanent=True), None, at))
    return SortedResults(written, frozenset(lost), left)


def _unwritable(refused: Exception) -> ErrorInfo:
    """The error of a job whose result the store rejects, with the reason if it is Tidemill's own."""
    if not isinstance(refused, TidemillError):
        return UNWRITABLE
    return ErrorInfo(UNWRITABLE.type, f"{UNWRITABLE.message}: {refused.message}")
