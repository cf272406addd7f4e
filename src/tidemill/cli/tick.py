"""``tidemill tick``: run due jobs, then exit; for hosts with timers."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.context import opened_app
from tidemill.cli.parsers import duration


@click.command()
@app_named
@click.option("--budget", type=duration, default="25", metavar="S", help="Seconds to run.  [default: 25]")
@click.option("--queues", "-q", metavar="A,B", help="Serve only these queues.  [default: all]")
@click.option("--stores", metavar="A,B", help="Serve only these stores of the app.  [default: all]")
@click.option("--concurrency", "-c", type=click.IntRange(0), help="Coroutines at the same time.")
@click.option("--threads", "-t", type=click.IntRange(0), help="Plain functions at the same time.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tick(
    app: str,
    budget: timedelta,
    queues: str | None,
    stores: str | None,
    concurrency: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Run due jobs for a limited time, then exit.

    APP is module:attribute, such as shop:app. Jobs that still run after --budget seconds go back to their queue.
    """
    opened: Any = opened_app(app)
    try:
        done = opened.tick(
            budget.total_seconds(), queues=queues, stores=stores, concurrency=concurrency, threads=threads
        )
    finally:
        opened.close()
    if as_json:
        click.echo(json.dumps({"processed": done.processed, "errors": done.errors}))
    else:
        click.echo(f"processed {done.processed}, errors {done.errors}")
