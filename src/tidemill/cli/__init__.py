"""The command line: ``tidemill <group> <verb>``, one file per group. It talks to stores and knows no SQL."""

from __future__ import annotations

import sys

import click

from tidemill.cli.db import db
from tidemill.errors import TidemillError, UsageError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemill", prog_name="tidemill")
def commands() -> None:
    """Background jobs for Python that are simple to start, fast, and cannot be lost."""


commands.add_command(db)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 failed, 2 asked wrongly."""
    try:
        commands(prog_name="tidemill")
    except TidemillError as error:
        click.echo(f"tidemill: {error}", err=True)
        sys.exit(2 if isinstance(error, UsageError) else 1)
