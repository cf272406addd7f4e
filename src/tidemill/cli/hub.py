"""``tidemill hub``: a server of store verbs for workers without a database connection."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import Any

import click

from tidemill.cli.context import opened_app
from tidemill.cli.log_options import taken_logs, with_log_options
from tidemill.cli.stop_signals import stop_event, wait_for
from tidemill.clock import SystemClock
from tidemill.engine.hub.server import Hub
from tidemill.engine.hub.service import HubService
from tidemill.engine.log_formats import write_output
from tidemill.errors import BadSettings
from tidemill.stores.open import open_store
from tidemill.stores.wire.base import CONNECT
from tidemill.stores.wire.open import open_wire


@click.command()
@click.argument("app", required=False, metavar="[APP]")
@click.option(
    "--app",
    "named",
    envvar="TIDEMILL_APP",
    metavar="MODULE:ATTR",
    help="The same as APP; also TIDEMILL_APP.",
)
@click.option("--store", "url", metavar="URL", help="Serve a store without an app.")
@click.option(
    "--store-name", metavar="NAME", help="Serve this store of the app.  [default: the app's default store]"
)
@click.option(
    "--wire",
    "wires",
    multiple=True,
    required=True,
    envvar="TIDEMILL_WIRE",
    metavar="URL",
    help="Broker, such as nats://broker/shop or amqp://broker/shop; repeat for several. Also TIDEMILL_WIRE.",
)
@click.option("--no-duties", is_flag=True, help="Leave schedules, retries and recovery to other processes.")
@with_log_options
@click.option("--json", "as_json", is_flag=True, help="Print the configuration as JSON.")
def hub(
    app: str | None,
    named: str | None,
    url: str | None,
    store_name: str | None,
    wires: tuple[str, ...],
    no_duties: bool,
    as_json: bool,
    **log_options: Any,
) -> None:
    """Serve workers that do not reach the database.

    APP is module:attribute, such as shop:app. With --store instead, the hub serves the hands of any app, and schedules and limits
    must be declared by another process.

    Hands connect with: tidemill hand APP --wire URL. They need a key that allows jobs.work.
    """
    logs = taken_logs(log_options)
    write_output(logs)
    opened: Any = None
    with ExitStack() as stack:
        if url is None:
            where = app or named
            if not where:
                raise click.UsageError(
                    "Missing argument 'APP'; write tidemill hub module:app, or pass --store URL"
                )
            opened = opened_app(where)
            stack.callback(opened.close)
            served = opened if store_name is None else opened.at_store(store_name)
            store = served.store
        else:
            if app is not None or store_name is not None:
                raise BadSettings("give APP or --store, not both: an app names its own store")
            served, store = None, open_store(url)
            stack.callback(store.close)
        if store.url.startswith("memory"):
            raise BadSettings("a store in memory has no other process to serve; give the hub a database")
        lines = [open_wire(wire) for wire in wires]
        clock = SystemClock()
        environment = None if opened is None else opened.environment
        service = HubService(
            Hub(store, clock, lines, environment=environment), store, clock, served, duties=not no_duties
        )
        stopping = stack.enter_context(stop_event())
        service.start()
        stack.callback(service.close)
        for line in lines:
            line.wait_connected(2 * CONNECT)
        _announce(
            {
                "store": store.url,
                "wires": [line.url for line in lines],
                "duties": not no_duties,
            },
            as_json=as_json or logs.as_json,
        )
        wait_for(stopping)


def _announce(values: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"started": values}))
    else:
        click.echo(f"  {'store':<8}{values['store']}")
        for wire in values["wires"]:
            click.echo(f"  {'wire':<8}{wire}")
        click.echo(f"  {'duties':<8}{'yes' if values['duties'] else 'no'}")
    sys.stdout.flush()
