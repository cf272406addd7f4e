"""``tidemill tick``: process what is due, then return; for hosts that run on a timer."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.reading import duration
from tidemill.engine.locate import find_app


@click.command()
@click.argument("app", envvar="TIDEMILL_APP", metavar="APP")
@click.option("--budget", type=duration, default="25", metavar="S", help="Seconds to spend.  [default: 25]")
@click.option("--queues", "-q", metavar="A,B", help="Only these queues.  [default: all]")
@click.option("--concurrency", "-c", type=click.IntRange(0), help="Coroutines at a time.")
@click.option("--threads", "-t", type=click.IntRange(0), help="Functions at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tick(
    app: str,
    budget: timedelta,
    queues: str | None,
    concurrency: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Process what is due, for at most about --budget seconds, and return.

    APP is module:attr, or TIDEMILL_APP. Jobs that are still running when the time is over are handed back.
    """
    found: Any = find_app(app)
    try:
        done = found.tick(budget.total_seconds(), queues=queues, concurrency=concurrency, threads=threads)
    finally:
        found.close()
    if as_json:
        click.echo(json.dumps({"processed": done.processed, "errors": done.errors}))
    else:
        click.echo(f"processed {done.processed}, errors {done.errors}")
