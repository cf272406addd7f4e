"""``tidemill signals``: send signals to jobs, and answer their questions."""

from __future__ import annotations

import json
from typing import Any

import click

from tidemill.cli.completion import job_ids
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.job_views import one
from tidemill.cli.screen import Column, age, print_json, print_lines, print_table
from tidemill.client.jobs.api import SHOWN
from tidemill.client.signals import Question, Signals


@click.group(cls=InOrder)
def signals() -> None:
    """Send signals to jobs, and answer their questions."""


@signals.command()
@click.argument("job", shell_complete=job_ids)
@click.argument("name")
@click.option("--data", metavar="JSON", help="Payload as JSON.")
@click.option("--key", metavar="KEY", help="Key; a job accepts it once.")
@with_context
def send(context: CommandContext, job: str, name: str, data: str | None, key: str | None) -> None:
    """Send a signal to a job.

    The job keeps it until it takes it.
    """
    payload = read_json("--data", data)
    target = one(context, job)
    accepted = Signals(context.client).send(
        target, name, payload, key=key, tenant=target.tenant, store=context.job_store
    )
    if context.as_json:
        print_json({"job": str(target.id), "name": name, "accepted": accepted})
    elif accepted:
        print_lines([(f"sent {name} to job {target.id}", "")])
    else:
        print_lines(
            [(f"job {target.id} has accepted a signal with the key {key} before; nothing was sent", "")]
        )


@signals.command("list")
@click.argument("job", shell_complete=job_ids)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Maximum number of signals."
)
@with_context
def list_signals(context: CommandContext, job: str, limit: int) -> None:
    """List the signals that a job has not taken yet."""
    target = one(context, job)
    unread = Signals(context.client).list(target, limit=limit, tenant=target.tenant, store=context.job_store)
    if context.as_json:
        print_json([_document(signal) for signal in unread])
        return
    now = context.now()
    columns = (
        Column("name"), Column("age", right=True), Column("payload", flexible=True), Column("key", optional=True),
        Column("sender", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [signal.name, age(signal.created_at, now), signal.payload, signal.key, signal.source]
        for signal in unread
    ]
    print_table(columns, rows, empty="no unread signals")


@signals.command()
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="Maximum number of questions.",
)
@tenant_option
@with_context
def questions(context: CommandContext, limit: int, tenant: str) -> None:
    """List the questions of jobs that wait for an answer."""
    asked = Signals(context.client).questions(limit=limit, tenant=tenant)
    if context.as_json:
        print_json([_question(question) for question in asked])
        return
    now = context.now()
    columns = (
        Column("job", tail=SHOWN), Column("question"), Column("to"), Column("message", flexible=True),
        Column("until", right=True, optional=True),
    )  # fmt: skip
    rows = [
        [
            question.job_id,
            question.title,
            question.to,
            question.message,
            None if question.until is None else age(question.until, now),
        ]
        for question in asked
    ]
    print_table(columns, rows, empty="no job asks anything")


@signals.command()
@click.argument("job", shell_complete=job_ids)
@click.option("--data", metavar="JSON", required=True, help="Answer as JSON.")
@with_context
def answer(context: CommandContext, job: str, data: str) -> None:
    """Answer the question that a job asks.

    The job resumes with the answer.
    """
    target = one(context, job)
    question = Signals(context.client).answer(
        target, read_json("--data", data), tenant=target.tenant, store=context.job_store
    )
    if context.as_json:
        print_json(_question(question))
    else:
        print_lines([(f"answered {question.title} of job {target.id}", "")])


def _question(question: Question) -> dict[str, object]:
    until = None if question.until is None else question.until.isoformat()
    return {**question._asdict(), "job_id": str(question.job_id), "until": until}


def _document(signal: Any) -> dict[str, object]:
    return {
        **signal._asdict(),
        "job_id": str(signal.job_id),
        "payload": None if signal.payload is None else json.loads(signal.payload),
        "created_at": signal.created_at.isoformat(),
    }


def read_json(option: str, text: str | None) -> object:
    """Read the JSON of an option."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not JSON: {error}", param_hint=option) from None
