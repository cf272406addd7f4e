"""``tidemill keys``: API keys, and keys that encrypt secret values.

A secret is printed once, when its key is created.
"""

from __future__ import annotations

from datetime import timedelta

import click

from tidemill.cli.completion import key_ids
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.encryption_keys import rotate, status
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import duration, pairs
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table, stamp
from tidemill.cli.suggestions import OneOf
from tidemill.client.access import Keys
from tidemill.client.documents import key_document, key_state
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.tasks.secret_values import new_key


@click.group(cls=InOrder)
def keys() -> None:
    """Create, list and revoke API keys, and rotate encryption keys."""


@keys.command()
@click.argument("name")
@click.option(
    "--role",
    type=OneOf([role.value for role in Role]),
    default=Role.VIEWER.value,
    show_default=True,
    help="Role of the key.",
)
@click.option("--tenant", metavar="NAME", help="Tenant of the key.  [default: all tenants]")
@click.option(
    "--expires", type=duration, metavar="DURATION", help="Lifetime, such as 90d.  [default: unlimited]"
)
@click.option(
    "--max-priority",
    type=click.IntRange(-100, 100),
    metavar="N",
    help="Highest priority of jobs enqueued with this key.  [default: any]",
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="GRANT",
    help="Restrict the role, such as 'jobs.*,-jobs.arguments task=report.*'; repeat for several.",
)
@click.option(
    "--tenant-role",
    "tenant_roles",
    multiple=True,
    metavar="TENANT=ROLE",
    help="Role in one of several tenants, instead of --role and --tenant.",
)
@click.option(
    "--environment",
    metavar="NAME",
    help="Only environment in which the key is accepted.  [default: any]",
)
@with_context
def create(
    context: CommandContext,
    name: str,
    role: str,
    tenant: str | None,
    expires: timedelta | None,
    max_priority: int | None,
    grants: tuple[str, ...],
    tenant_roles: tuple[str, ...],
    environment: str | None,
) -> None:
    """Create a key and print its secret, once."""
    made = Keys(context.app_client).create(
        name,
        role=role,
        tenant=tenant,
        expires=expires,
        max_priority=max_priority,
        grants=grants,
        roles=pairs("--tenant-role", tenant_roles) or None,
        environment=environment,
    )
    if context.as_json:
        print_json(key_document(made.key, context.now()) | {"secret": made.secret})
        return
    key = made.key
    whose = "all tenants" if key.tenant == ALL_TENANTS else f"tenant {key.tenant}"
    allowed = "".join(f", only {grant}" for grant in key.access.grants)
    most = "" if key.max_priority is None else f", jobs up to priority {key.max_priority}"
    until = "" if key.expires_at is None else f", until {stamp(key.expires_at)}"
    # Never truncated to the width of the terminal.
    click.echo(made.secret)
    words = f"key {key.id} ({key.name}): {key.role} for {whose}{allowed}{most}{until}; its secret is shown only now"
    print_lines([(words, "dim")])


@keys.command("list")
@with_context
def list_keys(context: CommandContext) -> None:
    """List keys, oldest first, without secrets."""
    keys = Keys(context.app_client).list()
    now = context.now()
    if context.as_json:
        print_json([key_document(key, now) for key in keys])
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
        for key in keys
    ]
    print_table(columns, rows, empty="no keys; create one with: tidemill keys create")


@keys.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=key_ids)
@with_context
def revoke(context: CommandContext, ids: tuple[str, ...]) -> None:
    """Revoke keys; takes effect within five seconds."""
    face = Keys(context.app_client)
    # Look up all ids first, so that a typo revokes nothing.
    before = [face.get(id) for id in dict.fromkeys(ids)]
    done = [face.revoke(key.id) for key in before]
    now = context.now()
    if context.as_json:
        print_json([key_document(key, now) for key in done])
        return
    for was, key in zip(before, done, strict=True):
        already = f" already, {age(key.revoked_at, now)}" if was.revoked_at is not None else ""
        print_lines([(f"key {key.id} ({key.name}) is revoked{already}", "")])


@keys.command()
@click.argument("name", default="k1")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def encryption(name: str, as_json: bool) -> None:
    """Print a new encryption key for secret arguments and results.

    Put it first into TIDEMILL_ENCRYPTION_KEYS of every process. Keep the older keys behind it, separated by commas, until no job
    that was sealed with them is left.
    """
    key = new_key(name)
    if as_json:
        print_json({"name": name, "key": key})
    else:
        click.echo(key)


keys.add_command(status)
keys.add_command(rotate)
