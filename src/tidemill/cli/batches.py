"""``tidemill batches``: list, cancel and retry batches."""

from __future__ import annotations

import click

from tidemill.cli.completion import batch_ids
from tidemill.cli.context import CommandContext, ask_first, own_tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, age, percent, print_fields, print_json, print_lines, print_table
from tidemill.cli.short_ids import by_short_id
from tidemill.cli.suggestions import OneOf
from tidemill.client.flows.batches import Batches, BatchRun
from tidemill.client.flows.documents import batch_document
from tidemill.client.jobs.api import SHOWN
from tidemill.domain.graph import FlowState
from tidemill.errors import FlowNotFound
from tidemill.tasks.ambient import tenant_scope


@click.group(cls=InOrder)
def batches() -> None:
    """List, cancel and retry batches."""


def _find(context: CommandContext, id: str, tenant: str) -> BatchRun:
    with tenant_scope(tenant):
        api = Batches(context.client)
        try:
            return api.get(id)
        except FlowNotFound:
            run = by_short_id(id, api.list(limit=1_000, archived=True), lambda run: run.id, "batches")
            if run is None:
                raise
            return run


@batches.command("list")
@click.option("--name", metavar="NAME", help="Only batches with this name.")
@click.option(
    "--status",
    type=OneOf([state.value for state in FlowState]),
    multiple=True,
    help="Only batches with this status.",
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of batches."
)
@click.option("--archived", is_flag=True, help="Include archived batches.")
@own_tenant_option
@with_context
def list_batches(
    context: CommandContext,
    tenant: str,
    name: str | None,
    status: tuple[str, ...],
    limit: int,
    archived: bool,
) -> None:
    """List batches, the newest first."""
    with tenant_scope(tenant):
        found = Batches(context.client).list(name=name, status=status or None, limit=limit, archived=archived)
        if context.as_json:
            print_json([batch_document(batch) for batch in found])
            return
        now = context.now()
        columns = (
            Column("id", tail=SHOWN), Column("name", flexible=True), Column("status"), Column("jobs", right=True),
            Column("failed", right=True), Column("done", right=True), Column("age", right=True),
        )  # fmt: skip
        rows = []
        for batch in found:
            counts = batch.counts()
            done = 1.0 if not counts.total else 1 - counts.remaining / counts.total
            rows.append(
                [batch.id, batch.name, batch.row.state, f"{counts.total:,}", f"{counts.bad:,}", percent(done),
                 age(batch.row.created_at, now)]
            )  # fmt: skip
        print_table(columns, rows, empty="no batches")


@batches.command()
@click.argument("batch", shell_complete=batch_ids)
@own_tenant_option
@with_context
def show(context: CommandContext, tenant: str, batch: str) -> None:
    """Show a batch with the numbers of its jobs."""
    found = _find(context, batch, tenant)
    document = batch_document(found)
    if context.as_json:
        print_json(document)
        return
    counts = found.counts()
    print_fields(
        [
            ("batch", found.name),
            ("id", found.id),
            ("description", found.description),
            ("status", found.row.state),
            ("jobs", f"{counts.total:,}, {counts.remaining:,} not ended, {counts.bad:,} failed"),
            ("progress", percent(document["progress"])),
            ("started", age(found.row.created_at, context.now())),
            ("cancelled", found.row.cancel_reason),
        ]
    )


@batches.command()
@click.argument("batch", shell_complete=batch_ids)
@click.option("--reason", metavar="TEXT", help="Reason, shown on the batch and its jobs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@own_tenant_option
@with_context
def cancel(context: CommandContext, tenant: str, batch: str, reason: str | None, yes: bool) -> None:
    """Let no further job begin, and ask running ones to stop."""
    found = _find(context, batch, tenant)
    if not yes:
        ask_first(f"Cancel batch {found.name} ({found.id})?")
    found.cancel(reason)
    _told(context, found, "is cancelled")


@batches.command()
@click.argument("batch", shell_complete=batch_ids)
@click.option("--again", is_flag=True, help="Run callbacks that have run again, too.")
@own_tenant_option
@with_context
def retry(context: CommandContext, tenant: str, batch: str, again: bool) -> None:
    """Run the failed jobs of a batch again."""
    found = _find(context, batch, tenant)
    found.retry_failed(again=again)
    _told(context, found, "runs again")


def _told(context: CommandContext, batch: BatchRun, words: str) -> None:
    if context.as_json:
        print_json(batch_document(batch))
    else:
        print_lines([(f"batch {batch.name} ({batch.id}) {words}", "")])
