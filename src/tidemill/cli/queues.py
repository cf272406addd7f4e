"""``tidemill queues``: what waits where, and pausing it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import click

from tidemill.cli import pausing
from tidemill.cli.desk import Desk, at_desk, tenant_option
from tidemill.cli.screen import Column, print_json, print_table, span, thousands
from tidemill.client.documents import instant, pause_document
from tidemill.client.stats import QueueStats, liveness, queue_stats
from tidemill.domain.ledger import PauseKind

QUEUES = (
    Column("queue"),
    Column("pending", right=True),
    Column("oldest", right=True),
    Column("paused", folds=True),
)


def queue_rows(found: Iterable[QueueStats], now: datetime) -> list[list[object]]:
    """Queues as rows of a table."""
    return [
        [
            queue.name,
            thousands(queue.pending),
            None if queue.oldest_at is None else span(now - queue.oldest_at),
            pausing.said(queue.pause, now),
        ]
        for queue in found
    ]


def queue_document(queue: QueueStats) -> dict[str, object]:
    """One queue as a document."""
    return {
        "name": queue.name,
        "pending": queue.pending,
        "oldest_at": instant(queue.oldest_at),
        "paused": None if queue.pause is None else pause_document(queue.pause),
    }


@click.group()
def queues() -> None:
    """What waits where, and pausing it."""


@queues.command("list")
@tenant_option
@at_desk
def list_queues(desk: Desk, tenant: str) -> None:
    """The queues in which something waits, that are paused, that a worker serves or that a task goes to."""
    now = desk.now()
    served = {
        name for worker in desk.store.workers() if liveness(worker, now) != "gone" for name in worker.queues
    }
    declared = {task.options.queue for task in desk.registry}
    found = queue_stats(desk.store, tenant=tenant, also=served | declared)
    if desk.as_json:
        print_json([queue_document(queue) for queue in found])
        return
    print_table(QUEUES, queue_rows(found, now), empty="no queues: nothing waits, and no worker is alive")


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--reason", metavar="TEXT", help="Why; whoever asks is told.")
@at_desk
def pause(desk: Desk, names: tuple[str, ...], reason: str | None) -> None:
    """Start nothing more from these queues; what runs goes on."""
    pausing.pause(desk, PauseKind.QUEUE, names, reason)


@queues.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@at_desk
def resume(desk: Desk, names: tuple[str, ...]) -> None:
    """Let these queues go on."""
    pausing.resume(desk, PauseKind.QUEUE, names)
