"""``manage.py tidemill import-beat``."""

from __future__ import annotations

import json

import click

from tidemill.contrib.django.beat import import_beat
from tidemill.contrib.django.project import PROJECT
from tidemill.errors import TidemillError


@click.command("import-beat")
@click.option("--replace", is_flag=True, help="Change schedules that exist already.")
@click.option("--dry-run", is_flag=True, help="Check the rows and store nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_beat_command(replace: bool, dry_run: bool, as_json: bool) -> None:
    """Copy the periodic tasks of django-celery-beat into schedules.

    A row that cannot be copied is named with the reason, and the exit code is 1.
    """
    try:
        rows = import_beat(PROJECT.app, replace=replace, dry_run=dry_run)
    except TidemillError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows]))
    else:
        for row in rows:
            click.echo(f"{row.outcome}: {row.name} ({row.task})" + (f": {row.note}" if row.note else ""))
        click.echo(f"{len(rows)} rows")
    if any(row.outcome == "refused" for row in rows):
        click.get_current_context().exit(1)
