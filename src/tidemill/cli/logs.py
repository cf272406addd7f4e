"""``tidemill logs``: search the log lines of all jobs."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from tidemill.cli.completion import job_ids, task_names
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.filters import WHEN
from tidemill.cli.groups import InOrder
from tidemill.cli.job_views import log_line, one
from tidemill.cli.parsers import moment
from tidemill.cli.screen import print_json, print_lines
from tidemill.cli.suggestions import OneOf
from tidemill.client.documents import found_line_document
from tidemill.client.jobs.api import short
from tidemill.domain.filters import MAX_PAGE
from tidemill.domain.job import LEVELS
from tidemill.domain.log_search import FoundLine


@click.group(cls=InOrder)
def logs() -> None:
    """Search the log lines of jobs."""


@logs.command()
@click.argument("text", required=False)
@click.option("--level", type=OneOf(LEVELS), help="Lowest level to print.")
@click.option("--task", multiple=True, metavar="NAME", shell_complete=task_names, help="Task; repeatable.")
@click.option("--job", metavar="ID", shell_complete=job_ids, help="Job, by its id or a unique part of it.")
@click.option("--since", type=moment, metavar="WHEN", help=WHEN)
@click.option("--until", type=moment, metavar="WHEN", help=WHEN)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=100,
    show_default=True,
    help="Maximum number of lines.",
)
@click.option("--cursor", metavar="CURSOR", help="Where an earlier search ended.")
@tenant_option
@with_context
def search(
    context: CommandContext,
    text: str | None,
    level: str | None,
    task: tuple[str, ...],
    job: str | None,
    since: datetime | timedelta | None,
    until: datetime | timedelta | None,
    limit: int,
    cursor: str | None,
    tenant: str,
) -> None:
    """Search the log lines of all jobs, newest first.

    TEXT is searched in the message; upper and lower case are the same. Lines of archived jobs are not searched.
    """
    page = context.jobs.search_logs(
        text,
        level=level,
        task=task,
        job=None if job is None else one(context, job).id,
        since=_instant(context, since),
        until=_instant(context, until),
        tenant=tenant,
        limit=limit,
        cursor=cursor,
    )
    if context.as_json:
        print_json({"items": [found_line_document(line) for line in page.items], "next": page.next})
        return
    print_lines([_shown(line) for line in page.items] or [("no log lines", "dim")], hang=2)
    if page.next is not None:
        print_lines([(f"more: --cursor {page.next}", "dim")])


def _instant(context: CommandContext, when: datetime | timedelta | None) -> datetime | None:
    return context.now() - when if isinstance(when, timedelta) else when


def _shown(line: FoundLine) -> tuple[str, str]:
    text, style = log_line(line.entry)
    return f"{line.task} {short(line.entry.job_id)} {text}", style
