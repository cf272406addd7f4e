"""``tidemill queues``: list, pause and resume queues."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import click

from tidemill.cli import pause_actions
from tidemill.cli.completion import queue_names
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.known_names import NOTHING, check_known
from tidemill.cli.screen import Column, print_json, print_table, span, thousands
from tidemill.client.documents import instant, pause_document
from tidemill.client.stats.loads import QueueStats, is_living, queue_stats
from tidemill.domain.records import PauseKind
from tidemill.errors import UsageError

QUEUES = (
    Column("queue"),
    Column("pending", right=True),
    Column("oldest", right=True),
    Column("paused", folds=True),
)


def queue_rows(queues: Iterable[QueueStats], now: datetime) -> list[list[object]]:
    """Return queues as table rows."""
    return [
        [
            queue.name,
            thousands(queue.pending),
            None if queue.oldest_at is None else span(now - queue.oldest_at),
            pause_actions.pause_words(queue.pause, now),
        ]
        for queue in queues
    ]


def queue_document(queue: QueueStats) -> dict[str, object]:
    """Return a queue as a document."""
    return {
        "name": queue.name,
        "pending": queue.pending,
        "oldest_at": instant(queue.oldest_at),
        "paused": None if queue.pause is None else pause_document(queue.pause),
    }


@click.group(cls=InOrder)
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list")
@tenant_option
@with_context
def list_queues(context: CommandContext, tenant: str) -> None:
    """List queues with their waiting jobs.

    The list holds queues that have jobs, are paused, are served by a worker or are named by a task.
    """
    now = context.now()
    queues = _found(context, tenant, now)
    if context.as_json:
        print_json([queue_document(queue) for queue in queues])
        return
    print_table(
        QUEUES,
        queue_rows(queues, now),
        empty="no queues: no jobs wait, and neither a task nor a living worker names a queue",
    )


def _found(context: CommandContext, tenant: str, now: datetime) -> list[QueueStats]:
    living = [worker for worker in context.store.workers() if is_living(worker, now)]
    served = {name for worker in living for name in worker.queues}
    declared = {task.options.queue for task in context.registry}
    return queue_stats(context.store, tenant=tenant, also=served | declared)


def _chosen(names: tuple[str, ...], everything: bool) -> tuple[PauseKind, tuple[str, ...]]:
    if bool(names) == everything:
        raise UsageError("name the queues, or pass --all for all of them")
    return (PauseKind.ALL, pause_actions.EVERYTHING) if everything else (PauseKind.QUEUE, names)


@queues.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=queue_names)
@click.option("--all", "everything", is_flag=True, help="Pause every queue: workers start no more jobs.")
@click.option("--reason", metavar="TEXT", help="Reason, shown by jobs why.")
@click.option("--new", is_flag=True, help="Allow a queue that is not known yet.")
@with_context
def pause(
    context: CommandContext, names: tuple[str, ...], everything: bool, reason: str | None, new: bool
) -> None:
    """Stop starting jobs of queues; running jobs finish."""
    chosen = _chosen(names, everything)
    if not new:
        check_known(context, PauseKind.QUEUE, names, hint="pass --new to pause it before its first job")
    pause_actions.pause(context, *chosen, reason)


@queues.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=queue_names)
@click.option("--all", "everything", is_flag=True, help="End the pause of --all; other pauses stay.")
@with_context
def resume(context: CommandContext, names: tuple[str, ...], everything: bool) -> None:
    """Resume paused queues."""
    chosen = _chosen(names, everything)
    check_known(context, PauseKind.QUEUE, names, hint=NOTHING)
    pause_actions.resume(context, *chosen)
