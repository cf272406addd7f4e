"""``tidemill keys``: who may come in. A secret is printed once, when its key is made."""

from __future__ import annotations

from datetime import timedelta

import click

from tidemill.cli.desk import Desk, at_desk
from tidemill.cli.jobs import InOrder
from tidemill.cli.reading import duration
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table, stamp
from tidemill.client.documents import key_document, key_state
from tidemill.client.keys import Keys
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS


@click.group(cls=InOrder)
def keys() -> None:
    """Who may come in: make keys, list them, revoke them."""


@keys.command()
@click.argument("name")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), default=Role.VIEWER.value, show_default=True
)
@click.option("--tenant", metavar="NAME", help="Only for this tenant; for all tenants unless given.")
@click.option("--expires", type=duration, metavar="DURATION", help="Such as 90d; never unless given.")
@at_desk
def create(desk: Desk, name: str, role: str, tenant: str | None, expires: timedelta | None) -> None:
    """Make a key and print its secret, which cannot be shown again."""
    made = Keys(desk.client).create(name, role=role, tenant=tenant, expires=expires)
    if desk.as_json:
        print_json(key_document(made.key, desk.now()) | {"secret": made.secret})
        return
    key = made.key
    whose = "all tenants" if key.tenant == ALL_TENANTS else f"tenant {key.tenant}"
    until = "" if key.expires_at is None else f", until {stamp(key.expires_at)}"
    click.echo(made.secret)  # whole, however narrow the screen is
    words = f"key {key.id} ({key.name}): {key.role} for {whose}{until}; its secret is shown only now"
    print_lines([(words, "dim")])


@keys.command("list")
@at_desk
def list_keys(desk: Desk) -> None:
    """All keys, the oldest first; never their secrets."""
    found = Keys(desk.client).list()
    now = desk.now()
    if desk.as_json:
        print_json([key_document(key, now) for key in found])
        return
    columns = (
        Column("id"), Column("name", flexible=True), Column("role"), Column("tenant", flexible=True), Column("state"),
        Column("created", optional=True), Column("expires", optional=True), Column("by", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            key.id,
            key.name,
            key.role.value,
            "all" if key.tenant == ALL_TENANTS else key.tenant,
            key_state(key, now),
            age(key.created_at, now),
            None if key.expires_at is None else age(key.expires_at, now),
            key.created_by,
        ]
        for key in found
    ]
    print_table(columns, rows, empty="no keys: make one with tidemill keys create")


@keys.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@at_desk
def revoke(desk: Desk, ids: tuple[str, ...]) -> None:
    """Let keys open nothing more; it takes effect everywhere within five seconds."""
    face = Keys(desk.client)
    before = [face.get(id) for id in dict.fromkeys(ids)]  # a slip of the pen revokes nothing
    done = [face.revoke(key.id) for key in before]
    now = desk.now()
    if desk.as_json:
        print_json([key_document(key, now) for key in done])
        return
    for was, key in zip(before, done, strict=True):
        already = f" already, {age(key.revoked_at, now)}" if was.revoked_at is not None else ""
        print_lines([(f"key {key.id} ({key.name}) is revoked{already}", "")])
