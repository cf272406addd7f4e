"""``tidemill intake``: turn messages of RabbitMQ queues into jobs."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.context import opened_app
from tidemill.cli.log_options import taken_logs, with_log_options
from tidemill.cli.stop_signals import stop_calls
from tidemill.client.core import client_of
from tidemill.delivery.intake import IntakeRule, serve_intakes
from tidemill.engine.log_formats import write_output
from tidemill.errors import BadSettings


@click.command()
@app_named
@click.option(
    "--queues", "-q", metavar="A,B", help="Read only these queues.  [default: all that the app declares]"
)
@with_log_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def intake(app: str, queues: str | None, as_json: bool, **log_options: Any) -> None:
    """Turn messages of RabbitMQ queues into jobs, until stopped.

    APP is module:attribute, such as shop:app. It declares the queues with app.intake(…). Any number of processes may read the
    same queue. SIGTERM or Ctrl-C stops it after the messages at hand.
    """
    logs = taken_logs(log_options)
    write_output(logs)
    opened: Any = opened_app(app)
    as_json = as_json or logs.as_json
    try:
        rules = chosen(client_of(opened).intakes, queues)
        started = [{"queue": rule.queue, "task": rule.task.name, "broker": rule.shown} for rule in rules]
        if as_json:
            click.echo(json.dumps({"started": started}))
        else:
            for row in started:
                click.echo(f"  {row['broker']} → {row['task']}")
        sys.stdout.flush()
        accepted, refused = asyncio.run(_serve(rules))
    finally:
        opened.close()
    if as_json:
        click.echo(json.dumps({"accepted": accepted, "dead_letters": refused}))
    else:
        click.echo(f"accepted {accepted}, dead letters {refused}")


def chosen(rules: list[IntakeRule], queues: str | None) -> list[IntakeRule]:
    """Return the rules of these queues, or all."""
    if not rules:
        raise BadSettings("the app declares no intake; add app.intake(queue, task, broker=…)")
    if queues is None:
        return rules
    names = [name.strip() for name in queues.split(",") if name.strip()]
    unknown = sorted(set(names) - {rule.queue for rule in rules})
    if unknown or not names:
        declared = ", ".join(rule.queue for rule in rules)
        raise BadSettings(f"the app declares no intake of queue {', '.join(unknown)!r}; it has {declared}")
    return [rule for rule in rules if rule.queue in names]


async def _serve(rules: list[IntakeRule]) -> tuple[int, int]:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Handlers of the event loop would be replaced by the default action when the loop is closed.
    with stop_calls(lambda: loop.call_soon_threadsafe(stopping.set)):
        return await serve_intakes(rules, stopping)
