"""Conditions of a call: whether the running job collects its jobs, and whether they are audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill.client.access import who
from tidemill.client.enqueue.options import CallOptions
from tidemill.domain.unique import Unique
from tidemill.errors import UsageError
from tidemill.tasks.ambient import Collector, current_collector
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client


def collector_for(client: Client, declared: Declared, call: CallOptions, place: str) -> Collector | None:
    """Return the block that collects this call's jobs; None if they go to a store or to the user's connection.

    Raises ``UsageError`` for a call that cannot be stored with the running job's completion.
    """
    block = current_collector()
    if block is None:
        return None
    if call.connection is not None:
        if block.declared is None:
            raise UsageError(
                f"{declared.name} cannot be enqueued on connection= inside a batch, which writes its jobs itself;"
                " enqueue it outside the block"
            )
        if block.only:
            raise UsageError(
                f"ctx.then writes {declared.name} with the completion of this job, not on connection=; leave connection= out,"
                " or call enqueue"
            )
        return None
    running = block.declared
    if running is None:
        return block  # of a batch
    if running.name not in client.registry or client.registry.get(running.name) is not running:
        raise UsageError(
            f"{declared.name} is a task of another app than {running.name}, the running job; enqueue it outside"
            " ctx.transaction()"
        )
    if client.store(place) is not client.store(client.placement.of_job()):
        raise UsageError(
            f"{declared.name} goes to the store {place!r}, which is not the store of the running job;"
            " enqueue it outside ctx.transaction()"
        )
    rule: Unique | None = call.given("unique", declared.options.unique)
    if rule is not None and (rule.on_conflict != "return" or rule.failed == "retry"):
        option = "failed='retry'" if rule.failed == "retry" else f"on_conflict={rule.on_conflict!r}"
        raise UsageError(
            f"{declared.name} has {option}, which needs the store's answer, and the job is written only"
            " when this one completes; use on_conflict='return', or enqueue it outside ctx.transaction()"
        )
    return block


def check_changes_nothing_else(rule: Unique | None) -> None:
    """Refuse a unique rule that a write in the user's own transaction cannot carry out."""
    if rule is not None and (rule.on_conflict in ("replace", "extend") or rule.failed == "retry"):
        option = "failed='retry'" if rule.failed == "retry" else f"on_conflict={rule.on_conflict!r}"
        raise UsageError(f"{option} changes another job, which a connection= of yours cannot")


def audited_by(declared: Declared, call: CallOptions) -> str | None:
    """Return the identity for the audit, if the call or its task asks for an audit record."""
    audited = declared.options.audit if call.audit is None else call.audit
    return who() if audited else None
