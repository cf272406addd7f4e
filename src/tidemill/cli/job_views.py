"""``tidemill jobs`` verbs that read jobs: list, count, show, logs, why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

import click

from tidemill.cli.completion import job_ids
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.filters import Where, filtered, tier_option
from tidemill.cli.screen import (
    STYLES,
    Column,
    age,
    clean,
    heading,
    percent,
    print_fields,
    print_json,
    print_json_line,
    print_lines,
    print_table,
    span,
    stamp,
    thousands,
)
from tidemill.cli.suggestions import OneOf
from tidemill.client import documents
from tidemill.client.jobs.api import SHOWN, Origin, origin
from tidemill.client.jobs.handle import Job
from tidemill.client.jobs.why import explain
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import LEVELS, Details, Execution, JobRow, LogEntry, Progress, levels_from
from tidemill.domain.large_values import read_reference, size_words
from tidemill.domain.stages import Stage
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.domain.steps import StepView

LAST_LINES = 20
SOME_CHILDREN = 20
END = 2**62
"""A log position after every line."""

WAKE = 1.0
"""Seconds between two reads of a followed log if no wake-up arrives."""

COLUMNS = (
    Column("id", tail=SHOWN), Column("status"), Column("task", flexible=True),
    Column("queue", flexible=True, optional=True, rank=3), Column("age", optional=True, right=True, rank=2),
    Column("progress", optional=True, right=True), Column("attempt", optional=True, right=True, rank=1),
    Column("tenant", flexible=True, optional=True, rank=4), Column("reason", flexible=True, optional=True, keeps=32, rank=-1),
)  # fmt: skip

_MODULES = re.compile(r"^(?:\w+\.)+(?=[A-Z]\w*(?::|$))")
"""The module path of an exception class at the start of a reason."""


def one(context: CommandContext, id: str) -> Job[object]:
    """Return the job with this id, or unique prefix or suffix of an id, of any tenant."""
    found, store = context.find(id)
    context.move_to(store)
    job: Job[object] = context.jobs.get(found, tenant=ALL_TENANTS, store=store)
    return job


def job_rows(jobs: Iterable[JobRow], now: datetime) -> Iterator[list[object]]:
    """Return jobs as table rows."""
    for job in jobs:
        done = percent(fraction_done(job)) if job.progress is not None or job.state in HELD else None
        yield [
            job.id,
            job.state.value,
            job.task,
            job.queue,
            span(now - job.created_at),
            done,
            f"{job.attempt}/{job.max_attempts}",
            job.tenant,
            short_reason(job.reason),
        ]


def short_reason(reason: str | None) -> str | None:
    """Return a reason with the class of the error without its module."""
    return None if reason is None else _MODULES.sub("", reason)


@click.command("list")
@filtered
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="Jobs per page.")
@click.option("--cursor", metavar="TEXT", help="Cursor printed by the previous page.")
@click.option("--oldest", is_flag=True, help="List the oldest first.")
@tier_option("live")
@with_context
def list_jobs(
    context: CommandContext,
    where: Where,
    limit: int,
    cursor: str | None,
    oldest: bool,
    tiers: tuple[str, ...],
) -> None:
    """List jobs, newest first."""
    sort = "oldest" if oldest else "newest"
    page = context.jobs.list(limit=limit, cursor=cursor, sort=sort, tiers=tiers or None, **where.of(context))
    now = context.now()
    rows = [job.row for job in page.items]
    if context.as_json:
        print_json({"items": [documents.job_document(job, now) for job in rows], "next": page.next})
        return
    empty = "no jobs" if tiers else "no live jobs; --tier tables also lists archived ones"
    if not rows and not tiers:
        empty = where.unknown(context) or empty
    print_table(COLUMNS, job_rows(rows, now), empty=empty)
    if page.next is not None:
        print_lines([(f"more: --cursor {page.next}", "dim")])


@click.command()
@filtered
@with_context
def count(context: CommandContext, where: Where) -> None:
    """Count jobs by status."""
    counts = context.jobs.counts(**where.of(context))
    by_status = {state.value: counts[state] for state in JobState if counts.get(state)}
    total = sum(by_status.values())
    if context.as_json:
        print_json({"total": total, "counts": by_status})
        return
    if not total and (unknown := where.unknown(context)) is not None:
        print_lines([(unknown, "dim")])
        return
    rows = [*by_status.items(), ("total", total)]
    columns = (Column("status"), Column("jobs", right=True))
    print_table(columns, [(name, thousands(number)) for name, number in rows], empty="")


@click.command()
@click.argument("id", shell_complete=job_ids)
@with_context
def show(context: CommandContext, id: str) -> None:
    """Show a job with its executions, log and children."""
    job = one(context, id)
    now = context.now()
    executions = job.executions()
    steps = job.steps()
    lines = last_lines(context, job)
    kin = JobFilter(ALL_TENANTS, parent_id=job.id)
    children = context.store.jobs(kin, sort=Sort.OLDEST, limit=SOME_CHILDREN)
    if context.as_json:
        document = documents.job_document(job.row, now)
        document["executions"] = [documents.execution_document(execution) for execution in executions]
        document["stages"] = [documents.stage_document(stage) for stage in job.stages()]
        document["steps"] = [documents.step_document(step) for step in steps]
        document["logs"] = [documents.log_document(entry) for entry in lines]
        document["children"] = [documents.job_document(child, now) for child in children.items]
        print_json(document if context.job_store is None else document | {"store": context.job_store})
        return
    print_fields([*_fields(job.row, now, origin(context.store, job.row)), ("store", context.job_store)])
    if shown := job.stages():
        heading("Stages")
        _print_stages(shown)
    if executions:
        heading("Executions")
        _print_executions(executions, now)
    if steps:
        heading("Steps")
        _print_steps(steps)
    if lines:
        heading("Last log lines")
        print_lines((log_line(entry) for entry in lines), hang=2)
    if children.items:
        heading("Children")
        print_table(COLUMNS, job_rows(children.items, now), empty="")
        if children.next is not None:
            print_lines([(f"more: tidemill jobs list --parent {job.id}", "dim")])


_INSTANTS = (
    "created_at", "run_at", "claimed_at", "started_at", "finished_at", "expires_at", "archived_at",
)  # fmt: skip


def _fields(job: JobRow, now: datetime, made_by: Origin) -> Iterator[tuple[str, object]]:
    document = documents.job_document(job, now)
    yield "id", job.id
    yield "task", job.task
    yield "status", job.state.value
    yield "reason", job.reason
    yield "asked to stop", job.cancel_reason
    yield "queue", job.queue
    yield "tenant", job.tenant
    yield "priority", job.priority
    yield "arguments", payload_words(job.args)
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    yield "crashes", job.crashes or None
    for name in _INSTANTS:
        yield name.removesuffix("_at").replace("run", "due"), _when(getattr(job, name), now)
    yield "took", None if job.duration is None else span(job.duration)
    yield "timeout", None if job.timeout is None else span(job.timeout)
    yield "worker", job.worker
    if job.progress is not None:
        yield "progress", _progress(job.progress, now)
    yield "ends", _when(eta_of(job, now), now)
    yield "result", payload_words(job.result)
    if job.error is not None:
        yield "error", f"{job.error.type}: {job.error.message}"
        yield "traceback", job.error.traceback
    for name in ("correlation_id", "trace_id", "parent_id", "unique_key"):
        yield name.replace("_", " "), document[name]
    yield "definition", made_by.definition
    yield "schedule", made_by.schedule
    yield from _details(job.details)
    yield "limits", ", ".join(job.limits) or None


def payload_words(text: str | None) -> str | None:
    """The stored text, or the size of a value that is not in the row."""
    reference = read_reference(text)
    if reference is None:
        return text
    if reference.refused is not None:
        return f"{size_words(reference.size)}, not kept: {reference.refused}"
    return f"{size_words(reference.size)}, sha256 {reference.sha256}"


def _details(details: Details) -> Iterator[tuple[str, object]]:
    yield "fire", None if details.fire_at is None else stamp(details.fire_at)
    yield "reference", None if details.reference is None else ":".join(details.reference)
    yield "tags", ", ".join(details.tags) or None
    yield "metadata", json.dumps(dict(details.metadata)) if details.metadata else None
    yield "headers", json.dumps(dict(details.headers)) if details.headers else None


def _when(at: datetime | None, now: datetime) -> str | None:
    return None if at is None else f"{stamp(at)} ({age(at, now)})"


def _progress(progress: Progress, now: datetime) -> str:
    words = [percent(progress.fraction)] if progress.fraction is not None else []
    if progress.step is not None:
        words.append(f"step {progress.step} of {progress.total or '?'}")
    words += [text for text in (progress.stage, progress.message) if text]
    if progress.at is not None:
        words.append(f"updated {age(progress.at, now)}")
    return ", ".join(words)


def _print_stages(shown: Iterable[Stage]) -> None:
    rows = [
        [stage.name, stage.words, stamp(stage.began_at), None if stage.took is None else span(stage.took)]
        for stage in shown
    ]
    columns = (Column("stage", flexible=True), Column("status"), Column("began"), Column("took", right=True))
    print_table(columns, rows, empty="")


def _print_executions(executions: Iterable[Execution], now: datetime) -> None:
    columns = (
        Column("attempt", right=True), Column("status"), Column("started"), Column("took", right=True),
        Column("worker", optional=True, tail=SHOWN), Column("reason", folds=True),
    )  # fmt: skip
    rows = []
    for execution in executions:
        began = execution.started_at or execution.claimed_at
        took = None if began is None else span((execution.finished_at or now) - began)
        reason = execution.reason or (
            execution.error and f"{execution.error.type}: {execution.error.message}"
        )
        rows.append([execution.attempt, execution.state.value, stamp(began), took, execution.worker, reason])
    print_table(columns, rows, empty="")


def _print_steps(steps: Iterable[StepView]) -> None:
    columns = (
        Column("step"), Column("recorded"), Column("took", right=True), Column("tries", right=True),
        Column("value", folds=True),
    )  # fmt: skip
    rows = []
    for step in steps:
        took = None if step.took is None else span(timedelta(seconds=step.took))
        value = step.value if isinstance(step.value, str) else json.dumps(step.value, ensure_ascii=False)
        rows.append([step.name, step.kind, took, step.tries, value])
    print_table(columns, rows, empty="")


# Logs ------------------------------------------------------------------------------------------------------------------


def last_lines(context: CommandContext, job: Job[object]) -> list[LogEntry]:
    """Return the last lines of a job's log."""
    if job.archived_at is not None:
        return job.logs()[-LAST_LINES:]
    lines = context.store.logs(job.id, tenant=ALL_TENANTS, before=END, limit=LAST_LINES)
    return [entry for _, entry in lines]


def log_line(entry: LogEntry) -> tuple[str, str]:
    """Format a log entry as one line, and return its style."""
    words = [stamp(entry.at), f"{entry.level:<7}"]
    if entry.stage:
        words.append(f"[{entry.stage}]")
    words.append(entry.message)
    words += [f"{name}={clean(json.dumps(value))}" for name, value in (entry.details or {}).items()]
    if entry.duration is not None:
        words.append(f"({span(entry.duration)})")
    return " ".join(words), STYLES.get(entry.level, "")


@click.command()
@click.argument("id", shell_complete=job_ids)
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
@click.option("--level", type=OneOf(LEVELS), help="Lowest level to print.")
@with_context
def logs(context: CommandContext, id: str, follow: bool, level: str | None) -> None:
    """Print the log of a job."""
    job = one(context, id)
    if context.as_json and not follow:
        print_json([documents.log_document(entry) for entry in job.logs(level=level)])
        return
    written = False
    for entry in _following(context, job.id, level) if follow else job.logs(level=level):
        written = True
        if context.as_json:
            print_json_line(documents.log_document(entry))
        else:
            print_lines([log_line(entry)])
    if not written and not context.as_json:
        print_lines([("no log lines", "dim")])


def _following(context: CommandContext, id: UUID, level: str | None) -> Iterator[LogEntry]:
    """Yield log lines as they are written, until the job has ended and all lines were yielded."""
    listener = context.store.listen()
    after = told = 0
    try:
        while True:
            rows = context.store.get([id], tenant=ALL_TENANTS)
            if not rows:
                yield from context.jobs.get(id, tenant=ALL_TENANTS).logs(level=level)[told:]
                return
            while page := context.store.logs(id, tenant=ALL_TENANTS, after=after, levels=levels_from(level)):
                yield from (entry for _, entry in page)
                after, told = page[-1][0], told + len(page)
            # The state was read before the lines, so no line can follow.
            if rows[0].state in ENDED:
                return
            listener.wait(WAKE)
    finally:
        listener.close()


# Why -------------------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("id", shell_complete=job_ids)
@with_context
def why(context: CommandContext, id: str) -> None:
    """Explain why a job is not running."""
    job = one(context, id).row
    explanations = explain(context.store, job, context.now(), context.job_store)
    if context.as_json:
        reasons = [{"code": reason.code, "text": reason.text} for reason in explanations]
        print_json({"id": str(job.id), "status": job.state.value, "reasons": reasons})
        return
    print_lines([(f"{job.task} {job.id}: {job.state}", "bold")])
    print_lines(((f"- {reason.text}", "") for reason in explanations), hang=2)
