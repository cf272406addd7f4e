"""``tidemill sessions``: list and end sign-ins to the dashboard."""

from __future__ import annotations

import click

from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table
from tidemill.client.documents import session_document
from tidemill.client.sessions import SHORT, SessionApi


@click.group(cls=InOrder)
def sessions() -> None:
    """List and end sign-ins to the dashboard."""


@sessions.command("list")
@with_context
def list_sessions(context: CommandContext) -> None:
    """List the sessions that have not ended."""
    living = SessionApi(context.app_client).list()
    if context.as_json:
        print_json([session_document(session) for session in living])
        return
    now = context.now()
    columns = (
        Column("id"), Column("who", flexible=True), Column("issuer", flexible=True, optional=True),
        Column("signed in"), Column("expires"),
    )  # fmt: skip
    rows = [
        [
            session.id[:SHORT],
            session.who,
            session.issuer,
            age(session.created_at, now),
            age(session.expires_at, now),
        ]
        for session in living
    ]
    print_table(columns, rows, empty="no sessions")


@sessions.command("end")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--all", "every", is_flag=True, help="End every session.")
@click.option("--who", metavar="NAME", help="End every session of this user.")
@with_context
def end_sessions(context: CommandContext, ids: tuple[str, ...], every: bool, who: str | None) -> None:
    """End sessions; takes effect within five seconds."""
    if bool(every) + bool(ids) + bool(who) != 1:
        raise click.UsageError("give ids of sessions, --who, or --all")
    api = SessionApi(context.app_client)
    if who is not None:
        ended = api.end_of(who)
    else:
        ended = api.end([session.id for session in api.list()] if every else ids)
    if context.as_json:
        print_json([session_document(session) for session in ended])
        return
    for session in ended:
        print_lines([(f"session {session.id[:SHORT]} of {session.who} has ended", "")])
    if not ended:
        print_lines([("no sessions", "dim")])
