"""``tidemill tenants``: pausing one, and letting it go on. How tenants do beside each other is ``tidemill stats tenants``."""

from __future__ import annotations

import click

from tidemill.cli import pausing
from tidemill.cli.desk import Desk, at_desk
from tidemill.domain.ledger import PauseKind


@click.group()
def tenants() -> None:
    """Pausing tenants."""


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--reason", metavar="TEXT", help="Why; whoever asks is told.")
@at_desk
def pause(desk: Desk, names: tuple[str, ...], reason: str | None) -> None:
    """Start nothing more of these tenants; what runs goes on."""
    pausing.pause(desk, PauseKind.TENANT, names, reason)


@tenants.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@at_desk
def resume(desk: Desk, names: tuple[str, ...]) -> None:
    """Let these tenants go on."""
    pausing.resume(desk, PauseKind.TENANT, names)
