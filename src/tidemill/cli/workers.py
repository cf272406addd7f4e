"""``tidemill workers``: list, drain, pause and scale workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from uuid import UUID

import click

from tidemill.cli.completion import worker_names
from tidemill.cli.context import CommandContext, ask_first, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table, size, span
from tidemill.cli.short_ids import by_short_id
from tidemill.client.documents import worker_document
from tidemill.client.jobs.api import SHOWN
from tidemill.client.stats.loads import held_by_worker, is_living, liveness
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.worker_reports import MOST, ProcessFigures
from tidemill.errors import BadFilter, WorkerNotFound


@click.group(cls=InOrder)
def workers() -> None:
    """List, drain, pause and scale workers."""


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
        Column("cpu", optional=True, right=True), Column("memory", optional=True, right=True),
        Column("up", optional=True, right=True), Column("version", optional=True),
    )  # fmt: skip
    rows = [
        [
            worker.id,
            liveness(worker, now),
            state_words(worker),
            f"{held.get(worker.id, 0)}/{worker.concurrency or '?'}",
            None if worker.beat_at is None else span(now - worker.beat_at),
            worker.name,
            worker.pid or None,
            ", ".join(worker.queues) or "all",
            worker.host or None,
            *figures_of(worker),
            None if worker.started_at is None else span(now - worker.started_at),
            worker.version or None,
        ]
        for worker in shown
    ]
    print_table(columns, rows, empty="no workers are alive")


@workers.command()
@with_context
def tree(context: CommandContext) -> None:
    """Show the workers that are alive, by host and supervisor."""
    now, held = context.now(), held_by_worker(context.store)
    living = [worker for worker in context.store.workers() if is_living(worker, now)]
    if context.as_json:
        print_json([worker_document(worker, now, held.get(worker.id, 0)) for worker in living])
        return
    rows = [
        row for host in sorted({worker.host for worker in living}) for row in _host_rows(host, living, held)
    ]
    columns = (
        Column("worker", flexible=True), Column("state"), Column("held", right=True), Column("cpu", right=True),
        Column("memory", right=True), Column("pid", optional=True, right=True),
    )  # fmt: skip
    print_table(columns, rows, empty="no workers are alive")


def _host_rows(host: str, living: Sequence[Worker], held: Mapping[UUID, int]) -> Iterator[list[object]]:
    """Yield the rows of a host: each supervisor is followed by its runners."""
    here = [worker for worker in living if worker.host == host]
    yield [host or "unknown host", None, _load(here, held), None, None, None]
    groups: dict[UUID, list[Worker]] = {}
    for worker in sorted(here, key=lambda worker: (worker.place, worker.name)):
        groups.setdefault(worker.supervisor or worker.id, []).append(worker)
    for group in sorted(groups.values(), key=lambda group: group[0].name):
        above = next((row.report.supervisor for row in group if row.report and row.report.supervisor), None)
        if above is not None:
            words = f"  supervisor {above.name}, {len(group)} of {above.processes}"
            yield [words, None, _load(group, held), *_figures(above.figures), above.pid]
        for worker in group:
            name = ("    " if above else "  ") + (worker.name or str(worker.id))
            yield [name, state_words(worker), _load([worker], held), *figures_of(worker), worker.pid or None]


def _load(workers: Sequence[Worker], held: Mapping[UUID, int]) -> str:
    jobs = sum(held.get(worker.id, 0) for worker in workers)
    return f"{jobs}/{sum(worker.concurrency for worker in workers) or '?'}"


def state_words(worker: Worker) -> str:
    """Return the state of a worker, or that it is paused."""
    return "paused" if worker.paused and worker.state is WorkerState.ACTIVE else worker.state.value


def figures_of(worker: Worker) -> tuple[str | None, str | None]:
    """Return CPU and memory of a worker's process, as far as it reported them."""
    return (None, None) if worker.report is None else _figures(worker.report.figures)


def _figures(figures: ProcessFigures) -> tuple[str | None, str | None]:
    cpu = None if figures.cpu is None else f"{figures.cpu:.0%}"
    return cpu, None if figures.memory is None else size(figures.memory)


@workers.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=worker_names)
@with_context
def pause(context: CommandContext, ids: tuple[str, ...]) -> None:
    """Ask workers, by id or name, to claim nothing until resumed.

    Running jobs continue.
    """
    _request(context, ids, context.control.pause_worker, "claims nothing more", "is paused already")


@workers.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=worker_names)
@with_context
def resume(context: CommandContext, ids: tuple[str, ...]) -> None:
    """Let paused workers, by id or name, claim jobs again."""
    _request(context, ids, context.control.resume_worker, "claims jobs again", "was not paused")


@workers.command()
@click.argument("id", metavar="ID", shell_complete=worker_names)
@click.option(
    "--processes", type=click.IntRange(1, MOST["processes"]), help="Runner processes of its supervisor."
)
@click.option(
    "--concurrency", type=click.IntRange(1, MOST["concurrency"]), help="Coroutines of each process at a time."
)
@click.option(
    "--threads", type=click.IntRange(1, MOST["threads"]), help="Functions of each process at a time."
)
@click.option(
    "--children", type=click.IntRange(1, MOST["children"]), help="Isolated jobs of each process at a time."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_context
def scale(
    context: CommandContext,
    id: str,
    processes: int | None,
    concurrency: int | None,
    threads: int | None,
    children: int | None,
    yes: bool,
) -> None:
    """Change the processes or slots of the supervisor of a worker.

    The worker is given by id or name. Surplus processes finish their jobs and exit. A restarted supervisor begins with the numbers of its command line.
    """
    numbers = {
        "processes": processes, "concurrency": concurrency, "threads": threads, "children": children,
    }  # fmt: skip
    if all(number is None for number in numbers.values()):
        raise BadFilter("no number is given; give --processes, --concurrency, --threads or --children")
    now = context.now()
    worker = _chosen([worker for worker in context.store.workers() if is_living(worker, now)], id)
    if not yes:
        changes = ", ".join(f"{name} {number}" for name, number in numbers.items() if number is not None)
        ask_first(f"{worker.name or worker.id}: change to {changes}?")
    after = context.control.scale_worker(worker.id, **numbers)
    if context.as_json:
        print_json({"processes": after.processes, "slots": after.slots._asdict()})
        return
    words = f"{after.processes} process{'' if after.processes == 1 else 'es'}"
    print_lines(
        [
            (
                f"{worker.name or worker.id}: {words} with {after.slots.total} slots each, from its next heartbeat on",
                "",
            )
        ]
    )


def _request(
    context: CommandContext, ids: tuple[str, ...], act: Callable[[UUID], bool], done: str, already: str
) -> None:
    """Ask living workers for something, and print what happens."""
    now = context.now()
    living = [worker for worker in context.store.workers() if is_living(worker, now)]
    chosen = [_chosen(living, id) for id in dict.fromkeys(ids)]
    changed = {worker.id for worker in chosen if act(worker.id)}
    if context.as_json:
        held, after = held_by_worker(context.store), {row.id: row for row in context.store.workers()}
        print_json([worker_document(after.get(w.id, w), now, held.get(w.id, 0)) for w in chosen])
        return
    print_lines([(f"{row.name or row.id} {done if row.id in changed else already}", "") for row in chosen])


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
