"""``tidemill workers``: list and drain workers."""

from __future__ import annotations

import click

from tidemill.cli.completion import worker_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table, span
from tidemill.cli.short_ids import by_short_id
from tidemill.client.documents import worker_document
from tidemill.client.jobs.api import SHOWN
from tidemill.client.stats.loads import held_by_worker, is_living, liveness
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.errors import BadFilter, WorkerNotFound


@click.group(cls=InOrder)
def workers() -> None:
    """List and drain workers."""


@workers.command("list")
@click.option("--all", "everyone", is_flag=True, help="Include workers that are gone.")
@with_context
def list_workers(context: CommandContext, everyone: bool) -> None:
    """List workers, newest first.

    Workers that are gone and hold no jobs are listed only with --all.
    """
    held = held_by_worker(context.store)
    now = context.now()
    workers = context.store.workers()
    shown = [worker for worker in workers if everyone or is_living(worker, now) or held.get(worker.id)]
    if context.as_json:
        print_json([worker_document(worker, now, held.get(worker.id, 0)) for worker in shown])
        return
    columns = (
        Column("id", tail=SHOWN), Column("alive"), Column("state"), Column("held", right=True), Column("beat", right=True),
        Column("name", flexible=True, optional=True), Column("pid", optional=True, right=True),
        Column("queues", flexible=True, optional=True), Column("host", flexible=True, optional=True),
        Column("up", optional=True, right=True), Column("version", optional=True),
    )  # fmt: skip
    rows = [
        [
            worker.id,
            liveness(worker, now),
            worker.state.value,
            f"{held.get(worker.id, 0)}/{worker.concurrency or '?'}",
            None if worker.beat_at is None else span(now - worker.beat_at),
            worker.name,
            worker.pid or None,
            ", ".join(worker.queues) or "all",
            worker.host or None,
            None if worker.started_at is None else span(now - worker.started_at),
            worker.version or None,
        ]
        for worker in shown
    ]
    print_table(columns, rows, empty="no workers are alive")


@workers.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=worker_names)
@with_context
def drain(context: CommandContext, ids: tuple[str, ...]) -> None:
    """Ask workers, by id or name, to finish and claim no more jobs."""
    now = context.now()
    living = [worker for worker in context.store.workers() if is_living(worker, now)]
    chosen = [_chosen(living, id) for id in dict.fromkeys(ids)]
    changed = {worker.id for worker in chosen if context.control.drain(worker.id)}
    held = held_by_worker(context.store)
    if context.as_json:
        after = {worker.id: worker for worker in context.store.workers()}
        print_json([worker_document(after.get(w.id, w), now, held.get(w.id, 0)) for w in chosen])
        return
    for worker in chosen:
        words = "drains" if worker.id in changed or worker.state is WorkerState.DRAINING else "is gone"
        number = held.get(worker.id, 0)
        print_lines(
            [(f"{worker.name or worker.id} {words}; it holds {number} job{'' if number == 1 else 's'}", "")]
        )


def _chosen(living: list[Worker], text: str) -> Worker:
    named = [worker for worker in living if text == worker.name]
    if len(named) > 1:
        raise BadFilter(f"{len(named)} living workers are named {text!r}; give an id")
    worker = named[0] if named else by_short_id(text, living, lambda worker: worker.id, "workers")
    if worker is not None:
        return worker
    raise WorkerNotFound(
        f"no living worker has the id or the name {text!r}; see tidemill workers list", name=text
    )
