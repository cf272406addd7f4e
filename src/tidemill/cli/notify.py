"""``tidemill notify``: tests of channels, messages of your own, and the sent notifications."""

from __future__ import annotations

import click

from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table
from tidemill.client.documents import notification_document
from tidemill.client.notifications import Notifications


@click.group(cls=InOrder)
def notify() -> None:
    """Test channels, send messages, and list notifications."""


@notify.command("list")
@click.option("--status", help="Only notifications whose job has this status.")
@click.option("--channel", help="Only notifications to this channel.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Number of notifications."
)
@with_context
def list_notifications(context: CommandContext, status: str | None, channel: str | None, limit: int) -> None:
    """List notifications with their recipients, the newest first."""
    found = Notifications(context.client).list(status=status, channel=channel, limit=limit)
    if context.as_json:
        print_json([notification_document(notification) for notification in found])
        return
    now = context.now()
    columns = (
        Column("created", right=True), Column("channel"), Column("kind"), Column("status"), Column("attempts", right=True),
        Column("title", flexible=True), Column("error", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            age(notification.created_at, now),
            notification.to or notification.channel,
            notification.kind,
            notification.status,
            notification.attempts,
            notification.title,
            notification.error,
        ]
        for notification in found
    ]
    print_table(columns, rows, empty="no notifications")


@notify.command()
@with_context
def channels(context: CommandContext) -> None:
    """List the channels and owners of the app."""
    context.need_app("channels")
    infos = Notifications(context.client).channels()
    if context.as_json:
        print_json([channel._asdict() for channel in infos])
        return
    print_table(
        (Column("channel"), Column("kind")), [list(channel) for channel in infos], empty="no channels"
    )


@notify.command()
@click.argument("channel", nargs=-1)
@click.option("--to", help="Another recipient, for mail channels.")
@with_context
def test(context: CommandContext, channel: tuple[str, ...], to: str | None) -> None:
    """Send a test message now, through some channels or all.

    The channels are those of ``App(notify=…)``. The command sends it itself, without a worker and without retries. The exit code is 1 if a channel does not accept it.
    """
    context.need_app("channels")
    tests = Notifications(context.client).test(*channel, to=to)
    if context.as_json:
        print_json([test._asdict() for test in tests])
    else:
        columns = (Column("channel"), Column("kind"), Column("sent"), Column("answer", flexible=True))
        rows = [
            [test.name, test.kind, "no" if test.error else "yes", test.error or test.answer] for test in tests
        ]
        print_table(columns, rows, empty="no channels")
    if any(test.error for test in tests):
        click.get_current_context().exit(1)


@notify.command()
@click.argument("channel")
@click.argument("title")
@click.option("--text", default="", help="The text of the message.")
@click.option("--to", help="Another recipient, for a mail channel.")
@with_context
def send(context: CommandContext, channel: str, title: str, text: str, to: str | None) -> None:
    """Send a message through a channel; a worker delivers it."""
    context.need_app("channels")
    job = Notifications(context.client).send(channel, title, text, to=to)
    if context.as_json:
        print_json({"id": str(job.id), "channel": channel})
    else:
        print_lines([(f"notification {job.id} to {channel} is enqueued", "")])
