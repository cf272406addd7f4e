"""``tidemill shards``: list shards and the tenants in them."""

from __future__ import annotations

import click

from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table, thousands
from tidemill.client.documents import placement_document, shard_document


@click.group(cls=InOrder)
def shards() -> None:
    """List shards and the tenants in them."""


@shards.command("list")
@with_context
def list_shards(context: CommandContext) -> None:
    """List shards with their tenants, workers and waiting jobs."""
    context.need_app("a list of shards")
    statuses = context.application.shards.list()
    if context.as_json:
        print_json([shard_document(status) for status in statuses])
        return
    columns = (
        Column("shard"), Column("status"), Column("tenants", right=True), Column("workers", right=True),
        Column("waiting", right=True), Column("weight", right=True), Column("new tenants"),
        Column("address", flexible=True, optional=True),
    )  # fmt: skip
    cells = [
        [
            f"{status.name} (home)" if status.is_home else status.name,
            status.code or "ok", thousands(status.tenants), thousands(status.workers), thousands(status.waiting),
            f"{status.weight:g}", "yes" if status.is_open else "no", status.url,
        ]
        for status in statuses
    ]  # fmt: skip
    print_table(columns, cells, empty="no shards")


@shards.command("tenants")
@click.option("--shard", metavar="NAME", help="Only tenants of this shard.")
@with_context
def list_placements(context: CommandContext, shard: str | None) -> None:
    """List the tenants that have a shard.

    Other tenants have no jobs yet, or only the home store.
    """
    context.need_app("a list of placements")
    rows = [row for row in context.application.shards.placements() if shard in (None, row.shard)]
    if context.as_json:
        print_json([placement_document(row) for row in rows])
        return
    columns = (
        Column("tenant", flexible=True), Column("shard"), Column("state"), Column("target", optional=True),
        Column("former", optional=True),
    )  # fmt: skip
    cells = [
        [row.tenant, row.shard, row.state.value, row.target, ", ".join(row.former) or None] for row in rows
    ]
    print_table(columns, cells, empty="no tenant has a shard yet")


@shards.command("place")
@click.argument("tenant")
@click.option("--shard", metavar="NAME", help="The shard.  [default: chosen as for a first job]")
@with_context
def place_tenant(context: CommandContext, tenant: str, shard: str | None) -> None:
    """Place a new tenant in a shard before its first job."""
    context.need_app("placing a tenant")
    row = context.application.shards.place(tenant, shard)
    if context.as_json:
        print_json(placement_document(row))
        return
    print_lines([(f"tenant {row.tenant} is in the shard {row.shard}", "")])
