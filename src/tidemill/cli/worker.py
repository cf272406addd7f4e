"""``tidemill worker``: a supervisor and its runners. The app is imported by the runners, never here."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, NoReturn

import click

from tidemill.cli.reading import duration
from tidemill.domain.cluster import Coordination
from tidemill.engine.health import LOOPBACK
from tidemill.engine.logs import LEVELS, write_logs
from tidemill.engine.settings import default_processes, read_settings
from tidemill.engine.supervisor import Supervisor

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Size(click.ParamType[int]):
    """An amount of memory: 512M, 1.5G, or a number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r} is no amount of memory; write 512M or 2G", param, ctx)
        return int(float(found[1]) * 1024 ** _POWERS[found[2].lower()])


@click.command()
@click.argument("app", envvar="TIDEMILL_APP", metavar="APP")
@click.option(
    "--processes", "-p", type=click.IntRange(1, 1024), help="Runner processes.  [default: one per core]"
)
@click.option(
    "--concurrency",
    "-c",
    type=click.IntRange(0),
    help="Coroutines at a time, in each process.  [default: 100]",
)
@click.option(
    "--threads", "-t", type=click.IntRange(0), help="Functions at a time, in each process.  [default: 10]"
)
@click.option(
    "--children",
    type=click.IntRange(0),
    help="Jobs with a process of their own, for each process.  [default: 2]",
)
@click.option("--queues", "-q", metavar="A,B", help="Only these queues.  [default: all]")
@click.option(
    "--grace",
    type=duration,
    metavar="S",
    help="Seconds a stop waits for running jobs.  [default: 25]",
)
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Replace a process after so many jobs.")
@click.option(
    "--max-age",
    type=duration,
    metavar="12h",
    help="Replace a process after so long.",
)
@click.option("--max-memory", type=Size(), metavar="512M", help="Replace a process that uses so much memory.")
@click.option(
    "--coordination",
    type=click.Choice([word.value for word in Coordination]),
    help="Who does the duties.  [default: as fits the store]",
)
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="P",
    help="Answer /livez, /readyz and /metrics on this port; 0 takes a free one.",
)
@click.option(
    "--health-host",
    default=LOOPBACK,
    show_default=True,
    metavar="HOST",
    help="The address they are answered on.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Give up when a process cannot import the app, also after a reload, or has no task.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@click.option("--json", "as_json", is_flag=True, help="Say what was started as JSON.")
def worker(
    app: str,
    processes: int | None,
    health_port: int | None,
    health_host: str,
    strict: bool,
    log_level: str,
    log_json: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Run the jobs of APP (module:attribute, or TIDEMILL_APP) until told to stop.

    SIGTERM or Ctrl-C stops it in good order: running jobs have --grace seconds, what is left then goes back to its queue.
    A second one skips the grace, a third one kills. SIGHUP loads the code anew without a pause.
    """
    processes = processes or default_processes()
    # Where several runners share a machine, one connection each that claims is enough.
    supervisor = Supervisor(
        app,
        read_settings({**settings, "pumps": 1 if processes > 1 else 2}),
        processes=processes,
        strict=strict,
        health=None if health_port is None else (health_host, health_port),
        log_level=log_level,
        log_json=log_json,
        announce=lambda facts: _announce(facts, as_json=as_json or log_json),
        complain=lambda why: click.echo(f"tidemill: {why}", err=True),
    )
    write_logs(log_level, as_json=log_json)
    work(supervisor)


def work(supervisor: Supervisor) -> NoReturn:
    """Work until told to stop, then exit with the code of that."""
    code = supervisor.run()
    if not supervisor.clean:
        # A thread still waits for a store that does not answer, and would keep us from ending in time.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _announce(facts: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"started": facts}))
    else:
        announced(facts)
    sys.stdout.flush()


def announced(facts: dict[str, object]) -> None:
    """A line for each thing a person wants to know of a worker that was started."""
    rows = {
        "app": facts["app"],
        "store": facts["store"],
        "tasks": _several(facts["tasks"]),
        "queues": _several(facts["queues"]),
        "slots": f"{facts['processes']} × {facts['slots']}",
        "health": facts["health"],
    }
    for name, value in rows.items():
        if value:
            click.echo(f"  {name:<8}{value}")


def _several(names: object) -> str:
    """A few names, and how many more there are."""
    assert isinstance(names, list)
    shown = ", ".join(names[:8])
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown or "none"
