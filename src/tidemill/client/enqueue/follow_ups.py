"""Collection of jobs enqueued inside ``ctx.transaction()`` or by ``ctx.then``.

These jobs go to the running job's block and are stored when it completes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.client.access import enqueued_entries
from tidemill.client.enqueue.options import CallOptions
from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.unique import Unique
from tidemill.errors import UsageError
from tidemill.tasks.ambient import Collector, current_collector
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client


def collector_for(client: Client, declared: Declared, call: CallOptions) -> Collector | None:
    """Return the block that collects this call's jobs; None if they go to a store or to the user's connection.

    Raises ``UsageError`` for a call that cannot be stored with the running job's completion.
    """
    block = current_collector()
    if block is None:
        return None
    if call.connection is not None:
        if block.only:
            raise UsageError(
                f"ctx.then writes {declared.name} with the completion of this job, not on connection=; leave connection= out,"
                " or call enqueue"
            )
        return None
    running = block.declared
    if running.name not in client.registry or client.registry.get(running.name) is not running:
        raise UsageError(
            f"{declared.name} is a task of another app than {running.name}, the running job; enqueue it outside"
            " ctx.transaction()"
        )
    if client.store(call.store) is not client.store(None):
        raise UsageError(
            f"{declared.name} goes to the store {call.store!r}, which is not the store of the running job;"
            " enqueue it outside ctx.transaction()"
        )
    rule: Unique | None = call.given("unique", declared.options.unique)
    if rule is not None and rule.on_conflict != "return":
        raise UsageError(
            f"{declared.name} has on_conflict={rule.on_conflict!r}, which needs the store's answer, and the job is written only"
            " when this one completes; use on_conflict='return', or enqueue it outside ctx.transaction()"
        )
    return block


def collect(block: Collector, jobs: Sequence[NewJob], by: str | None) -> list[Enqueued]:
    """Add these jobs to the block, with their audit entries if the call asks for them."""
    written = [Enqueued(job.id, True) for job in jobs]
    audit = []
    if by is not None:
        audit = [
            (job.id, entry)
            for job, answer in zip(jobs, written, strict=True)
            for entry in enqueued_entries([job], [answer], by)
        ]
    block.add(jobs, audit)
    return written
