"""``tidemill archive``: archive ended jobs, and search, restore, export and erase archived ones."""

from __future__ import annotations

from datetime import timedelta

import click

from tidemill.cli.archive_changes import erase, export, rebuild, restore
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.filters import Where, archive_filtered, tier_option
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import duration
from tidemill.cli.retention import explain, policies, settings
from tidemill.cli.screen import (
    Column,
    age,
    print_json,
    print_lines,
    print_table,
    size,
    span,
    thousands,
)
from tidemill.client.archive import BUDGET, MOST, Archive
from tidemill.client.documents import archived_document
from tidemill.client.jobs.api import SHOWN, Jobs
from tidemill.client.stats.reports import document
from tidemill.errors import BadSettings


@click.group(cls=InOrder)
def archive() -> None:
    """Archive, search, restore, export and erase ended jobs."""


@archive.command()
@click.option(
    "--older-than",
    type=duration,
    metavar="DURATION",
    help="Minimum time since the end, instead of that of the policies for live jobs.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=MOST, show_default=True, help="Maximum number of jobs."
)
@click.option(
    "--budget",
    type=duration,
    metavar="DURATION",
    default=span(BUDGET),
    show_default=True,
    help="Maximum time to run.",
)
@with_context
def run(context: CommandContext, older_than: timedelta | None, limit: int, budget: timedelta) -> None:
    """Archive due jobs now.

    Each copy is read back before the original is deleted. The exit code is 1 if a policy failed.
    """
    if not context.app:
        raise BadSettings(
            "archive run needs the policies of an app; pass --app module:app, or set TIDEMILL_APP"
        )
    done = Archive(context.client, Jobs(context.client)).run(
        older_than=older_than, limit=limit, budget=budget
    )
    if context.as_json:
        print_json(document(done))
    else:
        columns = (
            Column("policy", flexible=True), Column("tier", flexible=True, optional=True), Column("archived", right=True),
            Column("verified", optional=True, right=True), Column("failed", right=True),
            Column("changed", optional=True, right=True), Column("size", right=True), Column("took", right=True),
            Column("error", flexible=True, optional=True),
        )  # fmt: skip
        rows = [
            [
                item.policy,
                item.tier,
                thousands(item.archived),
                thousands(item.verified),
                thousands(item.failed),
                thousands(item.changed),
                size(item.bytes),
                span(item.took),
                item.error,
            ]
            for item in done.policies
        ]
        print_table(columns, rows, empty="there are no policies")
        counted = "1 job" if done.archived == 1 else f"{thousands(done.archived)} jobs"
        more = "; there is more that is due" if done.more else ""
        print_lines([(f"{counted} archived in {span(done.took)}{more}", "")])
    if done.failed or any(item.error for item in done.policies):
        click.get_current_context().exit(1)


@archive.command()
@archive_filtered
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="Jobs per page.")
@click.option("--cursor", metavar="TEXT", help="Cursor printed by the previous page.")
@click.option("--oldest", is_flag=True, help="List the oldest first.")
@tier_option("all")
@with_context
def search(
    context: CommandContext,
    where: Where,
    limit: int,
    cursor: str | None,
    oldest: bool,
    tiers: tuple[str, ...],
) -> None:
    """List archived jobs, newest first.

    Tags, references, metadata, text, definitions and schedules are inside the documents: for them a page reads up to
    2,000 documents. --json prints the full documents.
    """
    sort = "oldest" if oldest else "newest"
    page = Archive(context.client, Jobs(context.client)).search(
        limit=limit, cursor=cursor, sort=sort, tiers=tiers or "all", **where.of(context)
    )
    if context.as_json:
        print_json({"items": [archived_document(item) for item in page.items], "next": page.next})
        return
    now = context.now()
    columns = (
        Column("id", tail=SHOWN), Column("status"), Column("task", flexible=True), Column("queue", flexible=True, optional=True),
        Column("ended", right=True), Column("archived", optional=True, right=True),
        Column("tenant", flexible=True, optional=True), Column("tier", flexible=True, optional=True),
        Column("sound", optional=True),
    )  # fmt: skip
    rows = [
        [
            item.id,
            item.state.value,
            item.task,
            item.queue,
            age(item.finished_at, now),
            age(item.archived_at, now),
            item.tenant,
            item.tier,
            "yes" if item.sound else "no",
        ]
        for item in page.items
    ]
    print_table(columns, rows, empty="no archived jobs")
    if page.next is not None:
        print_lines([(f"more: --cursor {page.next}", "dim")])


for command in (restore, export, erase, rebuild, policies, explain, settings):
    archive.add_command(command)
