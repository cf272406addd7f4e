"""``tidemill archive``: moving ended jobs out of the live tables, and finding them again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.desk import Desk, at_desk
from tidemill.cli.filters import Where
from tidemill.cli.jobs import InOrder
from tidemill.cli.reading import duration, moment
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
from tidemill.client.reports import document
from tidemill.domain.states import ENDED

_OPTIONS = (
    click.option("--status", multiple=True, type=click.Choice(sorted(state.value for state in ENDED)),
                 metavar="STATUS", help="How the job ended, such as failed; may be repeated."),
    click.option("--task", multiple=True, metavar="NAME", help="May be repeated."),
    click.option("--queue", multiple=True, metavar="NAME", help="May be repeated."),
    click.option("--tenant", metavar="NAME", help="Only this tenant's; all tenants unless given."),
    click.option("--correlation-id", metavar="ID", help="Jobs of one story."),
    click.option("--parent", "parent_id", metavar="ID", help="Jobs enqueued from this one."),
    click.option("--created-after", type=moment, metavar="WHEN", help="An ISO instant, or 2h for two hours ago."),
    click.option("--created-before", type=moment, metavar="WHEN", help="An ISO instant, or 2h for two hours ago."),
)  # fmt: skip

_NAMES = (
    "status", "task", "queue", "tenant", "correlation_id", "parent_id", "created_after", "created_before",
)  # fmt: skip


@click.group(cls=InOrder)
def archive() -> None:
    """Move ended jobs out of the live tables, and find them again."""


@archive.command()
@click.option(
    "--older-than",
    type=duration,
    metavar="DURATION",
    help="Ended longer ago; as the policies say unless given.",
)
@click.option("--limit", type=click.IntRange(1), default=MOST, show_default=True, help="Jobs at most.")
@click.option(
    "--budget",
    type=duration,
    metavar="DURATION",
    default=span(BUDGET),
    show_default=True,
    help="Time at most.",
)
@at_desk
def run(desk: Desk, older_than: timedelta | None, limit: int, budget: timedelta) -> None:
    """Archive what is due; each copy is read back before its original goes. Ends with 1 where a policy failed."""
    done = Archive(desk.client).run(older_than=older_than, limit=limit, budget=budget)
    if desk.as_json:
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
                each.policy,
                each.tier,
                thousands(each.archived),
                thousands(each.verified),
                thousands(each.failed),
                thousands(each.changed),
                size(each.bytes),
                span(each.took),
                each.error,
            ]
            for each in done.policies
        ]
        print_table(columns, rows, empty="there are no policies")
        counted = "1 job" if done.archived == 1 else f"{thousands(done.archived)} jobs"
        more = "; there is more that is due" if done.more else ""
        print_lines([(f"{counted} archived in {span(done.took)}{more}", "")])
    if done.failed or any(each.error for each in done.policies):
        click.get_current_context().exit(1)


def _conditions(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the conditions by which archived jobs are found, gathered in its argument ``where``."""

    @functools.wraps(command)
    def called(*args: Any, **kwargs: Any) -> None:
        where = Where({name: kwargs.pop(name) for name in _NAMES})
        command(*args, where=where, **kwargs)

    decorated: Callable[..., None] = called
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


@archive.command()
@_conditions
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="Jobs on a page.")
@click.option("--cursor", metavar="TEXT", help="Where the page before ended.")
@click.option("--oldest", is_flag=True, help="The oldest first.")
@at_desk
def search(desk: Desk, where: Where, limit: int, cursor: str | None, oldest: bool) -> None:
    """The archived jobs that match, the newest first; with --json all that was written about them."""
    sort = "oldest" if oldest else "newest"
    page = Archive(desk.client).search(limit=limit, cursor=cursor, sort=sort, **where.of(desk))
    if desk.as_json:
        print_json({"items": [archived_document(each) for each in page.items], "next": page.next})
        return
    now = desk.now()
    columns = (
        Column("id"), Column("status"), Column("task", flexible=True), Column("queue", flexible=True, optional=True),
        Column("ended", right=True), Column("archived", optional=True, right=True),
        Column("tenant", flexible=True, optional=True), Column("tier", flexible=True, optional=True),
        Column("sound", optional=True),
    )  # fmt: skip
    rows = [
        [
            each.id,
            each.state.value,
            each.task,
            each.queue,
            age(each.finished_at, now),
            age(each.archived_at, now),
            each.tenant,
            each.tier,
            "yes" if each.sound else "no",
        ]
        for each in page.items
    ]
    print_table(columns, rows, empty="no archived jobs")
    if page.next is not None:
        print_lines([(f"more: --cursor {page.next}", "dim")])
