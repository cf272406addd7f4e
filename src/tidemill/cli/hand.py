"""``tidemill hand``: a worker that reaches the database through a hub."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.context import opened_app
from tidemill.cli.log_options import taken_logs, with_log_options
from tidemill.cli.parsers import duration
from tidemill.cli.stop_signals import stop_event, wait_for
from tidemill.configuration import value_of
from tidemill.engine.hand.hand import Hand
from tidemill.engine.log_formats import write_output
from tidemill.engine.worker_settings import read_settings
from tidemill.errors import BadSettings
from tidemill.stores.hub.store import HubStore
from tidemill.stores.wire.open import open_wire


@click.command()
@app_named
@click.option(
    "--wire",
    required=True,
    envvar="TIDEMILL_WIRE",
    metavar="URL",
    help="Broker of the hubs, such as nats://broker/shop or amqp://broker/shop; also TIDEMILL_WIRE.",
)
@click.option(
    "--concurrency", "-c", type=click.IntRange(0), help="Coroutines at the same time.  [default: 100]"
)
@click.option(
    "--threads", "-t", type=click.IntRange(0), help="Plain functions at the same time.  [default: 10]"
)
@click.option("--queues", "-q", metavar="A,B", help="Serve only these queues.  [default: all]")
@click.option(
    "--grace", type=duration, metavar="S", help="Seconds that a stop waits for running jobs.  [default: 25]"
)
@with_log_options
@click.option("--json", "as_json", is_flag=True, help="Print the configuration as JSON.")
def hand(app: str, wire: str, as_json: bool, **settings: Any) -> None:
    """Run jobs through a hub, without the database.

    APP is module:attribute, such as shop:app. The key in TIDEMILL_KEY must allow jobs.work; create one with:
    tidemill keys create NAME --role admin --grant jobs.work

    The store that the app names is not opened: handlers that enqueue jobs do it through the hub. Tasks that need a child process are
    left to other workers.
    """
    logs = taken_logs(settings)
    write_output(logs)
    key = value_of("TIDEMILL_KEY")
    if not key:
        raise BadSettings(
            "a hand needs a key in TIDEMILL_KEY; create one with: tidemill keys create NAME --role admin --grant jobs.work"
        )
    chosen = read_settings({**settings, "children": 0, "pumps": 1})
    with ExitStack() as stack:
        opened = opened_app(app)
        stack.callback(opened.close)
        store = HubStore(open_wire(wire), key, queues=chosen.queues)
        stack.callback(store.close)
        opened.configure(store)
        worker = Hand(
            opened.store,
            opened.registry,
            opened.clock,
            chosen,
            events=opened.events,
            hooks=opened.hooks,
            connections=opened.connections,
        )
        stopping = stack.enter_context(stop_event())
        worker.start()
        stack.callback(worker.stop)
        _announce(worker.describe(), as_json=as_json or logs.as_json)
        wait_for(stopping)


def _announce(values: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"started": dict(values)}))
    else:
        for name in ("wire", "tasks", "queues", "slots"):
            shown = values[name]
            text = ", ".join(shown) if isinstance(shown, list) else str(shown)
            if text:
                click.echo(f"  {name:<8}{text}")
    sys.stdout.flush()
