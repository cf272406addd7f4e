"""``tidemill notices``: the sent notices, and messages of your own."""

from __future__ import annotations

import click

from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table
from tidemill.client.documents import notice_document
from tidemill.client.notices import Notices


@click.group(cls=InOrder)
def notices() -> None:
    """List and send notices."""


@notices.command("list")
@click.option("--status", help="Only notices whose job has this status.")
@click.option("--channel", help="Only notices to this channel.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Number of notices."
)
@with_context
def list_notices(context: CommandContext, status: str | None, channel: str | None, limit: int) -> None:
    """List notices with their recipients, the newest first."""
    found = Notices(context.client).list(status=status, channel=channel, limit=limit)
    if context.as_json:
        print_json([notice_document(notice) for notice in found])
        return
    now = context.now()
    columns = (
        Column("created", right=True), Column("channel"), Column("kind"), Column("status"), Column("attempts", right=True),
        Column("title", flexible=True), Column("error", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            age(notice.created_at, now),
            notice.to or notice.channel,
            notice.kind,
            notice.status,
            notice.attempts,
            notice.title,
            notice.error,
        ]
        for notice in found
    ]
    print_table(columns, rows, empty="no notices")


@notices.command()
@with_context
def channels(context: CommandContext) -> None:
    """List the channels and owners of the app."""
    context.need_app("channels")
    infos = Notices(context.client).channels()
    if context.as_json:
        print_json([channel._asdict() for channel in infos])
        return
    print_table(
        (Column("channel"), Column("kind")), [list(channel) for channel in infos], empty="no channels"
    )


@notices.command()
@click.argument("channel")
@click.argument("title")
@click.option("--text", default="", help="The text of the message.")
@click.option("--to", help="Another recipient, for a mail channel.")
@with_context
def send(context: CommandContext, channel: str, title: str, text: str, to: str | None) -> None:
    """Send a message through a channel, for example to test it."""
    context.need_app("channels")
    job = Notices(context.client).send(channel, title, text, to=to)
    if context.as_json:
        print_json({"id": str(job.id), "channel": channel})
    else:
        print_lines([(f"notice {job.id} to {channel} is enqueued", "")])
