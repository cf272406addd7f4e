"""``tidemill check``: check code before a migration to Tidemill."""

from __future__ import annotations

from pathlib import Path

import click

from tidemill.cli.celery_uses import CeleryUse, Unreadable, Verdict, find_uses
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table


@click.group(cls=InOrder)
def check() -> None:
    """Check code that uses another job system."""


@check.command()
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="PATH..."
)
@click.option("--all", "everything", is_flag=True, help="List uses that need no change, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def celery(paths: tuple[Path, ...], everything: bool, as_json: bool) -> None:
    """List uses of Celery, and what becomes of them.

    The files are read, not imported. The exit code is 1 if something is not supported by tidemill.contrib.celery.
    """
    uses, unreadable = find_uses(list(paths))
    if as_json:
        print_json(
            {
                "uses": [
                    {
                        "file": str(use.file),
                        "line": use.line,
                        "use": use.use,
                        "verdict": use.verdict,
                        "note": use.note,
                    }
                    for use in uses
                ],
                "unreadable": [{"file": str(file), "problem": problem} for file, problem in unreadable],
            }
        )
    else:
        _show(uses, unreadable, everything=everything)
    if unreadable or any(use.verdict is Verdict.MISSING for use in uses):
        click.get_current_context().exit(1)


def _show(uses: list[CeleryUse], unreadable: list[Unreadable], *, everything: bool) -> None:
    shown = [use for use in uses if everything or use.verdict is not Verdict.WORKS]
    columns = (
        Column("where", flexible=True),
        Column("use", flexible=True),
        Column("verdict"),
        Column("note", flexible=True),
    )
    rows = [[f"{use.file}:{use.line}", use.use, use.verdict.value, use.note] for use in shown]
    print_table(
        columns, rows, empty="no use of Celery needs a change" if uses else "no use of Celery was found"
    )
    counts = {verdict: sum(use.verdict is verdict for use in uses) for verdict in Verdict}
    words = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    if words:
        print_lines([(f"{len(uses)} uses: {words}", "")])
    for file, problem in unreadable:
        print_lines([(f"{file} cannot be read: {problem}", "")])
