"""``tidemill worker``: a supervisor with runner processes.

Only the runners import the app, never this process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.log_options import LOG_OPTIONS, taken_logs
from tidemill.cli.parsers import duration
from tidemill.cli.suggestions import OneOf
from tidemill.domain.cluster import Coordination
from tidemill.early_signals import end_on_sigterm
from tidemill.engine.health import default_host
from tidemill.engine.log_formats import write_output
from tidemill.engine.store_shares import chosen_stores, read_shard_choice, read_stores
from tidemill.engine.supervisor.supervisor import Supervisor, need_posix
from tidemill.engine.worker_settings import default_processes, read_settings

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Size(click.ParamType[int]):
    """An amount of memory: 512M, 1.5G, or a number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is not an amount of memory; write 512M or 2G", param, ctx)
        return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])


_SHARED = (
    click.option(
        "--processes",
        "-p",
        type=click.IntRange(1, 1024),
        help="Runner processes, divided among the stores; each store has at least one.  [default: one per core; 1 with --reload]",
    ),
    click.option(
        "--concurrency",
        "-c",
        type=click.IntRange(0),
        help="Coroutines at the same time, per process.  [default: 100]",
    ),
    click.option(
        "--threads",
        "-t",
        type=click.IntRange(0),
        help="Plain functions at the same time, per process.  [default: 10]",
    ),
    click.option(
        "--stores",
        metavar="A,B",
        callback=lambda _context, _param, given: read_stores(given),
        help="Serve only these stores of the app, such as jobs,reports; jobs=3 sets the processes of one.  [default: all]",
    ),
    click.option(
        "--shards",
        metavar="A,B",
        callback=lambda _context, _param, given: read_shard_choice(given),
        help="Serve only these shards of the app, such as eu,us; all serves every shard.  [default: all]",
    ),
    click.option("--queues", "-q", metavar="A,B", help="Serve only these queues.  [default: all]"),
    click.option(
        "--grace",
        type=duration,
        metavar="S",
        help="Seconds that a stop waits for running jobs.  [default: 25]",
    ),
    click.option(
        "--health-host",
        default=default_host,
        metavar="HOST",
        help="Address of the health endpoints.  [default: every address in a Kubernetes pod, else 127.0.0.1]",
    ),
    click.option(
        "--reload",
        "reloads",
        is_flag=True,
        help="Reload when a source file of the app changes; for development.",
    ),
    *LOG_OPTIONS,
)


def worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that ``worker`` and ``up`` share."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command()
@app_named
@worker_options
@click.option(
    "--children",
    type=click.IntRange(0),
    help="Jobs in child processes (isolation='process'), per process.  [default: 2]",
)
@click.option(
    "--newer-code-wait",
    type=duration,
    metavar="1h",
    help="How long a job whose arguments this code cannot read waits for a worker with other code.  [default: 1h]",
)
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Replace a process after N jobs.")
@click.option(
    "--max-age",
    type=duration,
    metavar="12h",
    help="Replace a process at this age.",
)
@click.option("--max-memory", type=Size(), metavar="512M", help="Replace a process that uses more memory.")
@click.option(
    "--coordination",
    type=OneOf([word.value for word in Coordination]),
    help="How workers decide which of them runs the duties.  [default: depends on the store]",
)
@click.option(
    "--lease-rotation",
    type=duration,
    metavar="60s",
    help="Pass the leader's lease to another worker after this time.  [default: never]",
)
@click.option(
    "--lease-per-duty",
    is_flag=True,
    default=None,
    help="Use a lease for each duty, so that several workers share them.  [default: one lease for all]",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="P",
    help="Serve /livez, /readyz and /metrics on this port; 0 picks a free one.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Exit if a process cannot import the app, also after a reload, or finds no task.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the configuration as JSON.")
def worker(
    app: str,
    processes: int | None,
    stores: dict[str, int | None],
    shards: dict[str, int | None],
    health_port: int | None,
    health_host: str,
    strict: bool,
    reloads: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Run jobs: a supervisor with runner processes.

    APP is module:attribute, such as shop:app.

    SIGTERM or Ctrl-C stops the worker: running jobs have --grace seconds, then they go back to their queue. A second
    signal skips the grace period, a third one kills. SIGHUP reloads the code without a pause.
    """
    need_posix("tidemill worker")
    logs = taken_logs(settings)
    processes = processes or (1 if reloads else default_processes())
    # One claiming connection per runner is enough if several share the machine.
    supervisor = Supervisor(
        app,
        read_settings({**settings, "pumps": 1 if processes > 1 else 2}),
        processes=processes,
        stores=chosen_stores(stores, shards),
        strict=strict,
        reload=reloads,
        health=None if health_port is None else (health_host, health_port),
        logs=logs,
        announce=lambda values: _announce(values, as_json=as_json or logs.as_json),
        complain=lambda why: click.echo(f"tidemill: {why}", err=True),
    )
    write_output(logs)
    work(supervisor)


def work(supervisor: Supervisor) -> NoReturn:
    """Run until stopped, then exit with the supervisor's exit code."""
    code = supervisor.run()
    end_on_sigterm(code)  # a late signal must not change the exit code
    if not supervisor.clean:
        # A thread still waits for a store that does not respond, and would delay the exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _announce(values: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"started": values}))
    else:
        announced(values)
    sys.stdout.flush()


def announced(values: dict[str, object]) -> None:
    """Print the main facts of a worker that has started, one per line."""
    rows = {
        "app": values["app"],
        "store": None if values.get("stores") else values["store"],
        "stores": _shares(values.get("stores")),
        "tasks": _several(values["tasks"]),
        "queues": _several(values["queues"]),
        "slots": f"{values['processes']} × {values['slots']}",
        "health": values["health"],
    }
    for name, value in rows.items():
        if value:
            click.echo(f"  {name:<8}{value}")


def _shares(stores: object) -> str | None:
    """Format the stores of a worker with the number of processes of each; None for an app with one store."""
    if not isinstance(stores, dict):
        return None
    return ", ".join(f"{name} ({number})" for name, number in stores.items())


def _several(names: object) -> str:
    """Format a few names and the number of further ones."""
    assert isinstance(names, list)
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown or "none"
