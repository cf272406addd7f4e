"""``tidemill jobs stream``: follow a stream of a job."""

from __future__ import annotations

import json

import click

from tidemill.cli.completion import job_ids
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.job_views import one
from tidemill.cli.screen import Column, clean, print_json, print_json_line, print_table
from tidemill.client.documents import stream_item_document
from tidemill.client.jobs.handle import Job


@click.command()
@click.argument("id", shell_complete=job_ids)
@click.argument("name", required=False)
@click.option("--after", metavar="POSITION", help="Resume after this item, such as 1-300.")
@with_context
def stream(context: CommandContext, id: str, name: str | None, after: str | None) -> None:
    """Print a stream of a job until the job ends.

    Without NAME, list the streams of the job.

    Texts are printed as they are, other values as one line of JSON. If the job runs again, a line says so. --json prints one line
    per item, with its id.
    """
    job = one(context, id)
    if name is None:
        streams = job.streams()
        if context.as_json:
            print_json([{"name": stream, "items": items} for stream, items in streams.items()])
        else:
            print_table([Column("STREAM"), Column("ITEMS")], streams.items(), empty="no streams")
        return
    if context.as_json:
        for item in job.stream(name, after=after):
            print_json_line(stream_item_document(item))
    else:
        _print(job, name, after)


def _print(job: Job[object], name: str, after: str | None) -> None:
    execution, line_open = 0, False
    for item in job.stream(name, after=after):
        if item.execution != execution:
            if execution:
                click.echo("\n" * line_open + f"-- execution {item.execution} --")
                line_open = False
            execution = item.execution
        text = _shown(item.value)
        click.echo(text, nl=False)
        line_open = not text.endswith("\n") if text else line_open
    if line_open:
        click.echo()


def _shown(value: object) -> str:
    if isinstance(value, str):
        return "\n".join(clean(line) for line in value.split("\n"))
    return json.dumps(value) + "\n"
