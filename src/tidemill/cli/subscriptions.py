"""``tidemill subscriptions``: subscriptions to events, and the events that wait for them."""

from __future__ import annotations

import click

from tidemill.cli.completion import subscription_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table, thousands
from tidemill.client.documents import subscription_document
from tidemill.client.subscriptions import Subscriptions


@click.group(cls=InOrder)
def subscriptions() -> None:
    """List and remove subscriptions to events."""


@subscriptions.command("list")
@with_context
def list_subscriptions(context: CommandContext) -> None:
    """List subscriptions with the number of events that wait for each."""
    found = Subscriptions(context.client).list()
    if context.as_json:
        print_json([subscription_document(subscription) for subscription in found])
        return
    now = context.now()
    columns = (
        Column("subscription"), Column("on", flexible=True), Column("waiting", right=True), Column("failing", right=True),
        Column("oldest", right=True, optional=True), Column("last error", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            subscription.name,
            ", ".join(subscription.on),
            thousands(subscription.waiting),
            thousands(subscription.failing),
            None if subscription.oldest_at is None else age(subscription.oldest_at, now),
            subscription.last_error,
        ]
        for subscription in found
    ]
    print_table(columns, rows, empty="no subscriptions")


@subscriptions.command()
@click.argument("name", shell_complete=subscription_names)
@with_context
def remove(context: CommandContext, name: str) -> None:
    """End a subscription that no code declares, and delete its events."""
    events = Subscriptions(context.client).remove(name)
    if context.as_json:
        print_json({"name": name, "events": events})
    else:
        print_lines([(f"subscription {name} is removed with {thousands(events)} events", "")])
