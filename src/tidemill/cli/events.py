"""``tidemill events``: emit events, and list those of the last week."""

from __future__ import annotations

import json

import click

from tidemill.cli.context import CommandContext, own_tenant_option, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table, stamp
from tidemill.cli.signals import read_json
from tidemill.client.signals import Signals
from tidemill.domain.signals import EmittedEvent


@click.group(cls=InOrder)
def events() -> None:
    """Emit events, and list those of the last seven days."""


@events.command()
@click.argument("name")
@click.option("--data", metavar="JSON", help="Payload as JSON.")
@click.option("--match", metavar="TEXT", default="", help="Reaches jobs that wait for this text or for any.")
@click.option("--id", "id", metavar="ID", help="Id; the tenant accepts it once for this name.")
@own_tenant_option
@with_context
def emit(
    context: CommandContext, name: str, data: str | None, match: str, id: str | None, tenant: str | None
) -> None:
    """Emit an event to all jobs that wait for its name."""
    event = Signals(context.client).emit(name, read_json("--data", data), match=match, id=id, tenant=tenant)
    if context.as_json:
        print_json(
            {"name": name, "accepted": event is not None, "id": None if event is None else str(event.id)}
        )
    elif event is not None:
        print_lines([(f"emitted {name} ({event.id})", "")])
    else:
        print_lines([(f"an event {name} with the id {id} was emitted before; nothing was stored", "")])


@events.command("list")
@click.option("--name", metavar="NAME", help="Name of the events.")
@click.option("--match", metavar="TEXT", help="Match of the events.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of events."
)
@click.option("--cursor", metavar="CURSOR", help="Continue after the page that printed it.")
@tenant_option
@with_context
def list_events(
    context: CommandContext, name: str | None, match: str | None, limit: int, cursor: str | None, tenant: str
) -> None:
    """List events, newest first."""
    page, following = Signals(context.client).events(
        name=name, match=match, limit=limit, cursor=cursor, tenant=tenant
    )
    if context.as_json:
        print_json({"items": [_document(event) for event in page], "next": following})
        return
    columns = (
        Column("name"), Column("at"), Column("match", flexible=True), Column("payload", flexible=True),
        Column("sender", flexible=True, optional=True), Column("tenant", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            event.name,
            None if event.created_at is None else stamp(event.created_at),
            event.match,
            event.payload,
            event.source,
            event.tenant,
        ]
        for event in page
    ]
    print_table(columns, rows, empty="no events")
    if following is not None:
        print_lines([(f"more: --cursor {following}", "dim")])


def _document(event: EmittedEvent) -> dict[str, object]:
    return {
        **event._asdict(),
        "id": str(event.id),
        "payload": None if event.payload is None else json.loads(event.payload),
        "created_at": None if event.created_at is None else event.created_at.isoformat(),
    }
