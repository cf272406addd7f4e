"""``tidemill errors``: failures by cause; mute, resolve and retry them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import click

from tidemill.cli.completion import error_groups, task_names
from tidemill.cli.context import CommandContext, ask_first, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import duration
from tidemill.cli.screen import (
    Column,
    age,
    heading,
    print_fields,
    print_json,
    print_lines,
    print_table,
    thousands,
)
from tidemill.cli.suggestions import OneOf
from tidemill.client.documents import error_group_document, failure_count_document
from tidemill.client.error_groups import ErrorGroup
from tidemill.domain.decide import Action, expected
from tidemill.domain.failures import KEPT, ErrorStatus, FailureCount, FailurePart
from tidemill.errors import BadFilter

_OPEN = (ErrorStatus.OPEN, ErrorStatus.REGRESSED)
_MOST = 1_000


@click.group(cls=InOrder)
def errors() -> None:
    """List failures by their cause; mute, resolve and retry them.

    A cause is the class of an error and the innermost frame of your code. The first characters of a fingerprint are enough.
    """


@errors.command("list")
@click.option(
    "--window", type=duration, default="24h", show_default=True, help="Time window of the failures."
)
@click.option("--status", multiple=True, type=OneOf([status.value for status in ErrorStatus]), metavar="STATUS",
              help="open, regressed, muted or resolved; repeatable.  [default: open and regressed]")  # fmt: skip
@click.option("--task", metavar="NAME", shell_complete=task_names, help="Only failures of this task.")
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=50, show_default=True, help="Number of groups."
)
@tenant_option
@with_context
def list_errors(
    context: CommandContext,
    window: timedelta,
    status: tuple[str, ...],
    task: str | None,
    limit: int,
    tenant: str,
) -> None:
    """List failures of the window by cause, most first."""
    rows = context.errors.list(window, status=status or _OPEN, task=task, limit=limit, tenant=tenant)
    if context.as_json:
        print_json([error_group_document(row) for row in rows])
        return
    now = context.now()
    columns = (
        Column("id"), Column("jobs", right=True), Column("error", flexible=True), Column("where", flexible=True, optional=True),
        Column("status"), Column("tasks", right=True, optional=True), Column("tenants", right=True, optional=True),
        Column("first", right=True, optional=True), Column("last", right=True), Column("message", flexible=True),
    )  # fmt: skip
    cells = [
        [
            row.fingerprint[:8],
            thousands(row.jobs),
            _kind(row),
            row.place or row.task,
            _status(row),
            thousands(row.tasks),
            thousands(row.tenants),
            age(row.first_at, now),
            age(row.last_at, now),
            row.message,
        ]
        for row in rows
    ]
    print_table(columns, cells, empty="no errors in this window")


@errors.command()
@click.argument("fingerprint", shell_complete=error_groups)
@click.option(
    "--window", type=duration, default=KEPT, show_default="60 days", help="Time window of the failures."
)
@tenant_option
@with_context
def show(context: CommandContext, fingerprint: str, window: timedelta, tenant: str) -> None:
    """Show a group with its variants, tasks and tenants."""
    row = _found(context, fingerprint, window, tenant)
    parts = {part: context.errors.parts(row.fingerprint, part, window, tenant=tenant) for part in FailurePart}
    if context.as_json:
        shown = {f"{part}s": [failure_count_document(count) for count in parts[part]] for part in FailurePart}
        print_json(error_group_document(row) | shown)
        return
    now = context.now()
    print_fields(_fields(row, now))
    heading("Variants")
    print_table(_PARTS, [_part(count, count.message, now) for count in parts[FailurePart.VARIANT]], empty="")
    for part in (FailurePart.TASK, FailurePart.TENANT):
        if len(parts[part]) > 1:
            heading(f"{part}s".capitalize())
            print_table(_PARTS, [_part(count, count.name, now) for count in parts[part]], empty="")


@errors.command()
@click.argument("fingerprint", shell_complete=error_groups)
@tenant_option
@with_context
def mute(context: CommandContext, fingerprint: str, tenant: str) -> None:
    """Leave a group out of the list of open errors."""
    _mark(context, fingerprint, tenant, context.errors.mute)


@errors.command()
@click.argument("fingerprint", shell_complete=error_groups)
@tenant_option
@with_context
def unmute(context: CommandContext, fingerprint: str, tenant: str) -> None:
    """Open a muted group again."""
    _mark(context, fingerprint, tenant, context.errors.unmute)


@errors.command()
@click.argument("fingerprint", shell_complete=error_groups)
@tenant_option
@with_context
def resolve(context: CommandContext, fingerprint: str, tenant: str) -> None:
    """Mark a group as resolved; it regresses if it fails again."""
    _mark(context, fingerprint, tenant, context.errors.resolve)


@errors.command()
@click.argument("fingerprint", shell_complete=error_groups)
@tenant_option
@with_context
def unresolve(context: CommandContext, fingerprint: str, tenant: str) -> None:
    """Open a resolved group again."""
    _mark(context, fingerprint, tenant, context.errors.unresolve)


@errors.command()
@click.argument("fingerprint", shell_complete=error_groups)
@click.option("--spread", type=duration, metavar="DURATION", help="Start the jobs evenly over this time.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@tenant_option
@with_context
def retry(
    context: CommandContext, fingerprint: str, spread: timedelta | None, yes: bool, tenant: str
) -> None:
    """Retry every job whose last failure is in the group.

    The attempts start from zero again.
    """
    row = _found(context, fingerprint, KEPT, tenant)
    counts = context.jobs.counts(error_group=row.fingerprint, tenant=tenant, status=expected(Action.RETRY))
    total = sum(counts.values())
    if total and not yes:
        told = ", ".join(f"{thousands(number)} {state}" for state, number in sorted(counts.items()))
        ask_first(f"retry {thousands(total)} {'job' if total == 1 else 'jobs'} ({told})?")
    acted = context.errors.retry(row.fingerprint, spread=spread, tenant=tenant)
    if context.as_json:
        print_json({"done": acted.done, "skipped": acted.skipped})
        return
    skipped = f"; {thousands(acted.skipped)} had changed by then" if acted.skipped else ""
    none = "" if total else ": its jobs were retried, deleted or archived"
    print_lines([(f"{thousands(acted.done)} retried{skipped}{none}", "")])


_PARTS = (
    Column("jobs", right=True),
    Column("last", right=True),
    Column("what", flexible=True),
    Column("example"),
)


def _part(count: FailureCount, words: str, now: datetime) -> list[object]:
    example = None if count.example is None else count.example.hex[-12:]
    return [thousands(count.jobs), age(count.last_at, now), words, example]


def _fields(row: ErrorGroup, now: datetime) -> Iterator[tuple[str, object]]:
    yield "id", row.fingerprint
    yield "error", row.type
    yield "where", row.place
    yield "message", row.message
    yield "status", _status(row)
    yield "set by", None if row.marked_by is None else f"{row.marked_by} {age(row.marked_at, now)}"
    yield "jobs", thousands(row.jobs)
    yield "first", age(row.first_at, now)
    yield "last", age(row.last_at, now)
    yield "example", row.example


def _kind(row: ErrorGroup) -> str:
    return row.type.rpartition(".")[2] if row.type else "no error"


def _status(row: ErrorGroup) -> str:
    return "new" if row.is_new and row.status is ErrorStatus.OPEN else row.status.value


def _found(context: CommandContext, fingerprint: str, window: timedelta, tenant: str) -> ErrorGroup:
    """Return the only group whose fingerprint begins like this."""
    if len(fingerprint) >= 16:
        return context.errors.get(fingerprint, window, tenant=tenant)
    rows = context.errors.list(window, limit=_MOST, tenant=tenant)
    matches = [row for row in rows if row.fingerprint.startswith(fingerprint.lower())]
    if len(matches) > 1:
        names = ", ".join(row.fingerprint for row in matches[:5])
        raise BadFilter(f"{fingerprint!r} matches several errors: {names}; give more characters")
    return matches[0] if matches else context.errors.get(fingerprint, window, tenant=tenant)


def _mark(context: CommandContext, fingerprint: str, tenant: str, mark: Callable[..., ErrorGroup]) -> None:
    row = mark(_found(context, fingerprint, KEPT, tenant).fingerprint, tenant=tenant)
    if context.as_json:
        print_json(error_group_document(row))
        return
    print_lines([(f"error {row.fingerprint[:8]} is {row.status.value}", "")])
