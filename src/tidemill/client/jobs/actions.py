"""Batch actions that handles and ``app.jobs`` share: cancel, queue and priority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.client.access import NAMED, note, who
from tidemill.client.core import Client
from tidemill.client.enqueue.limit_cache import ceilings, check_ceiling
from tidemill.domain.bounds import check_name
from tidemill.domain.decide import Action, expected, move
from tidemill.domain.durations import Duration, read_duration, read_when
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import CHANGEABLE, Change, JobRow, Move
from tidemill.domain.schedule_fires import NODE_QUEUE
from tidemill.domain.states import HELD, JobState
from tidemill.errors import BadSettings, IllegalTransition, UsageError
from tidemill.stores.base import Store
from tidemill.tasks.options import check_priority

LONGEST_SPREAD = timedelta(days=7)

BATCH = 500
"""Maximum number of jobs in one store call."""


def cancel_batch(store: Store, batch: Sequence[JobRow], reason: str) -> frozenset[UUID]:
    """Cancel jobs, and ask workers to stop the jobs they hold; return the ids of the jobs affected."""
    held = [job.id for job in batch if job.state in HELD]
    # Before the move, which locks counter rows of flows: a worker that ends a held job locks the job first.
    asked = store.request_cancel(held, tenant=ALL_TENANTS, reason=reason)
    free = [job for job in batch if job.state in expected(Action.CANCEL)]
    return asked | store.move([move(job, Action.CANCEL, reason, by=who()) for job in free])


def cancel_descendants(client: Client, store: Store, root: JobRow, reason: str) -> int:
    """Cancel all descendants of a job within its tenant, and return their number.

    Each generation is read and cancelled in batches, each batch in a transaction with its audit entry. An ended job is
    skipped, but its children are not. Jobs that a running job enqueues later are not found.
    """
    done, seen, parents = 0, {root.id}, [root.id]
    while parents:
        children: list[JobRow] = []
        for at in range(0, len(parents), BATCH):
            where = JobFilter(root.tenant, parent_ids=frozenset(parents[at : at + BATCH]))
            children += [child for child in _all(store, where) if child.id not in seen]
        seen.update(child.id for child in children)
        for at in range(0, len(children), BATCH):
            done += _cancel(client, store, root, children[at : at + BATCH], reason)
        parents = [child.id for child in children]
    if done:
        store.notify(["ended", "cancel", "change", "cascade"])
    return done


def _all(store: Store, where: JobFilter) -> Iterator[JobRow]:
    after: str | None = None
    while True:
        page = store.jobs(where, sort=Sort.OLDEST, limit=1000, after=after)
        yield from (replace(job, args="", result=None) for job in page.items)
        if page.next is None:
            return
        after = page.next


def _cancel(client: Client, store: Store, root: JobRow, batch: Sequence[JobRow], reason: str) -> int:
    with store.transaction():
        changed = cancel_batch(store, batch, reason)
        told = [job for job in batch if job.id in changed]
        if told:
            before = {"status": dict(Counter(job.state.value for job in told))}
            after: dict[str, object] = {
                "descendants_of": str(root.id),
                "done": len(told),
                "ids": [str(job.id) for job in told[:NAMED]],
                "reason": reason,
            }
            note(store, "jobs.cancelled", "jobs", root.tenant, before=before, after=after, now=client.pin)
    return len(told)


def check_change(queue: str | None, priority: int | None) -> None:
    """Reject an empty change, and an invalid queue or priority."""
    if queue is None and priority is None:
        raise UsageError("there is nothing to change; give a queue, a priority, or both")
    if priority is not None:
        check_priority(priority)
    if queue is not None:
        check_name("queue", queue)
        if queue.startswith(NODE_QUEUE):
            raise BadSettings(
                f"queue {queue!r} belongs to one node or runner, and only schedules put jobs into it"
            )


def change_batch(
    store: Store, batch: Sequence[JobRow], queue: str | None, priority: int | None
) -> Collection[UUID]:
    """Change the queue or priority of jobs, each only from the state that was read; return the ids of changed jobs.

    Raises ``PriorityTooHigh`` if a tenant may not use the priority.
    """
    if priority is not None:
        most: Mapping[str, int] = ceilings(store.settings())
        for tenant in {job.tenant for job in batch}:
            check_ceiling(tenant, priority, most.get(tenant))
    return store.change(
        [
            Change(job.id, job.tenant, frozenset({job.state}), queue, priority)
            for job in batch
            if job.state in CHANGEABLE
        ]
    )


def delay_until(at: datetime | Duration, now: datetime) -> timedelta:
    """Return how long a rescheduled job waits, given an instant or a duration from now."""
    when = read_when("at", at)
    if when is None:
        raise UsageError("at is None; give an aware datetime or a duration")
    delay = when if isinstance(when, timedelta) else when - now
    if delay <= timedelta(0):
        raise UsageError("cannot reschedule a job to the past; call run_now() to run it at once")
    return delay


def spread_over(rows: Sequence[JobRow], spread: Duration | None) -> dict[UUID, timedelta]:
    """Return how long each job waits so that all of them start evenly over this time."""
    if spread is None:
        return {}
    whole = read_duration("spread", spread)
    if not timedelta(0) < whole <= LONGEST_SPREAD:
        raise UsageError(f"spread is {spread!r}; give a duration up to {LONGEST_SPREAD.days} days")
    return {row.id: whole * number / len(rows) for number, row in enumerate(rows) if number}


def put_off(row: JobRow, delay: timedelta) -> Move:
    """Return the write that lets a job that was just retried wait."""
    pending = replace(row, state=JobState.PENDING)
    return move(pending, Action.RESCHEDULE, "retried manually, spread over time", delay, by=who())


def unchangeable(job: JobRow) -> IllegalTransition:
    """Return the error for changing a job that is not waiting to run."""
    return IllegalTransition(
        f"cannot change job {job.id}: it is {job.state}; that needs {' or '.join(sorted(CHANGEABLE))}",
        id=job.id,
        state=job.state,
    )
