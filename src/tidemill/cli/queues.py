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
from tidemill.errors import UsageError

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


def _chosen(names: tuple[str, ...], everything: bool) -> tuple[PauseKind, tuple[str, ...]]:
    if bool(names) == everything:
        raise UsageError("name the queues that are meant, or say --all for everything")
    return (PauseKind.ALL, pausing.EVERYTHING) if everything else (PauseKind.QUEUE, names)


@queues.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--all", "everything", is_flag=True, help="Everything: no worker starts anything more.")
@click.option("--reason", metavar="TEXT", help="Why; whoever asks is told.")
@at_desk
def pause(desk: Desk, names: tuple[str, ...], everything: bool, reason: str | None) -> None:
    """Start nothing more from these queues, or from any; what runs goes on."""
    pausing.pause(desk, *_chosen(names, everything), reason)


@queues.command()
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--all", "everything", is_flag=True, help="End the pause of everything; other pauses stay.")
@at_desk
def resume(desk: Desk, names: tuple[str, ...], everything: bool) -> None:
    """Let these queues go on, or all that was paused as a whole."""
    pausing.resume(desk, *_chosen(names, everything))
