"""``tidemill jobs enqueue`` and ``watch``: enqueue and follow jobs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tidemill.cli.completion import job_ids, queue_names, task_names, tenant_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.job_views import one, payload_words
from tidemill.cli.known_names import refuse_similar
from tidemill.cli.parsers import duration, instant, json_or_text, metadata, read_arguments, reference
from tidemill.cli.screen import (
    STYLES,
    age,
    can_draw_over,
    clean,
    console,
    percent,
    print_json,
    print_json_line,
    print_lines,
    stamp,
)
from tidemill.cli.suggestions import OneOf
from tidemill.client import documents
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.jobs.handle import Job
from tidemill.client.jobs.why import explain
from tidemill.domain.large_values import is_reference
from tidemill.domain.states import JobState
from tidemill.domain.unique import Unique


@click.command()
@click.argument("task", shell_complete=task_names)
@click.argument("words", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--args", "given", metavar="JSON", help="Arguments as a JSON object; NAME=VALUE overrides.")
@click.option("--priority", type=int, help="-100 to 100; higher runs first.")
@click.option("--queue", metavar="NAME", shell_complete=queue_names, help="Queue, instead of the task's own.")
@click.option("--new", is_flag=True, help="Allow a new queue with a similar name.")
@click.option(
    "--delay", type=duration, metavar="DURATION", help="Run after this delay, such as 30s, 5m or 1h30m."
)
@click.option(
    "--at", "run_after", type=instant, metavar="INSTANT", help="Run at this time, such as 2026-03-01T06:00Z."
)
@click.option(
    "--expires",
    type=duration,
    metavar="DURATION",
    help="Cancel the job if it has not started after this long.",
)
@click.option("--tenant", metavar="NAME", shell_complete=tenant_names, help="Tenant of the job.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag; repeatable.")
@click.option(
    "--metadata", "pairs", type=metadata, multiple=True, metavar="KEY=VALUE", help="Metadata; repeatable."
)
@click.option("--reference", type=reference, metavar="KIND:ID", help="Reference, such as user:42.")
@click.option("--correlation-id", metavar="ID", help="Id shared with related jobs.")
@click.option(
    "--unique", "once", is_flag=True, help="Do nothing if a job with the same arguments has not ended."
)
@click.option(
    "--unique-by",
    multiple=True,
    metavar="NAME",
    help="Like --unique, but compare only this argument; repeatable.",
)
@click.option(
    "--record",
    type=OneOf(["full", "last", "none"]),
    help="Which executions are kept; none keeps nothing of a job that succeeds.",
)
@click.option("--wait", is_flag=True, help="Wait for the job and print its result.")
@with_context
def enqueue(
    context: CommandContext,
    /,
    task: str,
    words: tuple[str, ...],
    given: str | None,
    pairs: tuple[tuple[str, str], ...],
    once: bool,
    unique_by: tuple[str, ...],
    wait: bool,
    new: bool,
    **options: Any,
) -> None:
    """Enqueue a job of TASK.

    The arguments are validated first. Text that is valid JSON is read as JSON, unless the parameter is a string.
    """
    context.need_app("enqueueing")
    declared = context.registry.get(task)
    arguments = declared.arguments.load(read_arguments(given, words, declared.arguments.schema()))
    chosen = {name: value for name, value in options.items() if value not in (None, ())}
    if "queue" in chosen and not new:
        refuse_similar(context, chosen["queue"])
    if pairs:
        chosen["metadata"] = {key: json_or_text(value) for key, value in pairs}
    if once or unique_by:
        chosen["unique"] = Unique(by=unique_by)
    bound: BoundTask[Any, Any] = BoundTask(context.client, declared).using(**chosen)
    record = chosen.get("record", declared.options.record)
    if wait and record == "none":
        raise click.UsageError("--wait needs a result, and record='none' keeps none; give --record last")
    job = bound.enqueue(**arguments)
    context.move_to(job.store_name)
    if wait:
        _follow(context, job, quiet=context.as_json)
        return
    if context.as_json:
        # A job that keeps nothing may be gone already.
        row = job.row if record == "none" else job.refresh().row
        print_json(documents.job_document(row, context.now()))
    else:
        print_lines([(str(job.id), "")])


@click.command()
@click.argument("id", shell_complete=job_ids)
@with_context
def watch(context: CommandContext, id: str) -> None:
    """Show the progress of a job until it ends.

    The exit code is 1 if the job did not complete. --json prints one line per change.
    """
    _follow(context, one(context, id), quiet=False)


def _follow(context: CommandContext, job: Job[Any], *, quiet: bool) -> None:
    """Show a job's progress until it has ended, then its outcome. ``quiet`` shows only the outcome."""
    screen = console()
    if not context.as_json and can_draw_over(screen):
        _bar(context, job)
    else:
        last = ""
        for seen in job.watch():
            if quiet:
                continue
            if context.as_json:
                print_json_line(documents.job_document(seen.row, context.now()))
            elif (line := _line(seen)) != last:
                print_lines([(f"{stamp(context.now())} {line}", "")])
                last = line
    if context.as_json:
        if quiet:
            print_json(documents.job_document(job.row, context.now()))
    else:
        _outcome(job)
    if job.status is not JobState.COMPLETED:
        click.get_current_context().exit(1)


def _bar(context: CommandContext, job: Job[Any]) -> None:
    """Show a progress bar with the job's message below; remove it when the job has ended."""
    bar = Progress(
        TextColumn("{task.description}", style="bold", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        expand=True,
    )
    shown = bar.add_task(job.status.value, total=1.0, amount="", left="")
    with Live(bar, console=console(), transient=True) as live:
        for seen in job.watch():
            now = context.now()
            bar.update(
                shown,
                description=seen.status.value,
                completed=seen.progress,
                total=1.0 if seen.row.progress is not None or seen.ended else None,
                amount=percent(seen.progress) if seen.status is JobState.RUNNING else "",
                left="" if seen.eta is None else f"ends {age(max(seen.eta, now), now)}",
            )
            live.update(Group(bar, Text(clean(_words(context, seen, now)), "dim", overflow="ellipsis")))


def _words(context: CommandContext, job: Job[Any], now: datetime) -> str:
    """Return the job's stage and message, or why it has not started."""
    if job.status in (JobState.RUNNING, JobState.CLAIMED):
        return ": ".join(text for text in (job.stage, job.message) if text)
    if job.ended:
        return ""
    first = explain(context.store, job.row, now, context.job_store)[0]
    return "" if first.code == "soon" else first.text


def _line(job: Job[Any]) -> str:
    words = [job.status.value]
    if job.status is JobState.RUNNING:
        words.append(percent(job.progress))
    return " ".join([*words, *(text for text in (job.stage, job.message) if text)])


def _outcome(job: Job[Any]) -> None:
    if job.status is JobState.COMPLETED:
        value = (
            payload_words(job.row.result) if is_reference(job.row.result) else documents.plain(job.row.result)
        )
        print_lines([(f"{job.id} completed", STYLES["completed"])])
        if value is not None:
            print_lines([(value if isinstance(value, str) else json.dumps(value), "")])
        return
    print_lines([(f"{job.id} {job.status}: {job.reason or 'no reason was given'}", STYLES["error"])])
