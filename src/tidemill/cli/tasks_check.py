"""``tidemill tasks check``: find waiting jobs that new code cannot run.

Intended for use before a deployment.
"""

from __future__ import annotations

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.code_fit import CodeFit, check_waiting
from tidemill.cli.context import CommandContext, tenant_option
from tidemill.cli.screen import Column, print_json, print_lines, print_table, thousands
from tidemill.stores.open import open_store


@click.command("check")
@app_named
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="Check the jobs in this store instead of the app's own.",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    metavar="N",
    help="Check at most N jobs, oldest first.",
)
@tenant_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check_tasks(app: str, url: str | None, most: int, tenant: str, as_json: bool) -> None:
    """List waiting jobs that the code of APP cannot run.

    Either the code does not know the task, or it cannot read the arguments. The exit code is 1 if there are any.
    """
    with CommandContext(app, None, as_json=as_json) as context:
        registry = context.registry
        other = None if url is None else open_store(url)
        try:
            fit = check_waiting(other or context.store, registry, tenant=tenant, most=most)
        finally:
            if other is not None:
                other.close()
        _show(fit, as_json=as_json)
    if fit.unreadable:
        click.get_current_context().exit(1)


def _show(fit: CodeFit, *, as_json: bool) -> None:
    if as_json:
        groups = [
            {
                "task": group.task,
                "problem": group.problem,
                "count": group.count,
                "examples": [str(id) for id in group.examples],
            }
            for group in fit.unreadable
        ]
        print_json({"looked": fit.looked, "more": fit.more, "unreadable": groups})
        return
    columns = (
        Column("task", flexible=True),
        Column("jobs", right=True),
        Column("problem", flexible=True),
        Column("example", optional=True),
    )
    rows = [
        [group.task, thousands(group.count), group.problem, str(group.examples[0])]
        for group in fit.unreadable
    ]
    oldest = "the oldest " if fit.more else ""
    if rows:
        print_table(columns, rows, empty="")
    else:
        print_lines([(f"this code can run {oldest}{thousands(fit.looked)} waiting jobs", "")])
    if fit.more:
        print_lines([(f"only {oldest}{thousands(fit.looked)} were checked; raise --most to check more", "")])
