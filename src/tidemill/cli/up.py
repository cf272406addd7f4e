"""``tidemill up``: everything an app needs, in one command: schema, runners, duties, the dashboard and the HTTP API.

The supervisor is this process, and imports neither the app nor the API. The API is a process of its own beside the runners: it
imports the user's code and answers strangers, and neither must ever hold up the heartbeats.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click

from tidemill.cli.reading import duration
from tidemill.cli.serve import lines
from tidemill.cli.worker import announced, work
from tidemill.engine.companion import Companion
from tidemill.engine.health import LOOPBACK
from tidemill.engine.logs import LEVELS, write_logs
from tidemill.engine.settings import WorkerSettings, default_processes, read_settings
from tidemill.engine.supervisor import Supervisor
from tidemill.listening import listening

API = "the HTTP API"


@click.command()
@click.argument("app", envvar="TIDEMILL_APP", metavar="APP")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address the API listens on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one."
)
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
@click.option("--queues", "-q", metavar="A,B", help="Only these queues.  [default: all]")
@click.option(
    "--grace", type=duration, metavar="S", help="Seconds a stop waits for running jobs.  [default: 25]"
)
@click.option(
    "--allow-anonymous-create",
    is_flag=True,
    help="Jobs may be created without a key, for the app's own tenant.",
)
@click.option("--read-only", is_flag=True, help="Nothing can be changed over HTTP, whatever the key.")
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="P",
    help="Answer the worker's /livez, /readyz and /metrics on this port too; 0 takes a free one.",
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@click.option("--json", "as_json", is_flag=True, help="Say what was started as JSON.")
def up(
    app: str,
    host: str,
    port: int,
    processes: int | None,
    allow_anonymous_create: bool,
    read_only: bool,
    health_port: int | None,
    log_level: str,
    log_json: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Bring APP up (module:attribute, or TIDEMILL_APP): its schema, its workers, its schedules, its dashboard and its HTTP API.

    SIGTERM or Ctrl-C stops all of it in good order: running jobs have --grace seconds, requests under way five at most.
    A second one skips the grace, a third one kills. SIGHUP loads the code anew without a pause.
    """
    processes = processes or default_processes()
    bring_up(
        app,
        host=host,
        port=port,
        processes=processes,
        settings=read_settings({**settings, "pumps": 1 if processes > 1 else 2}),
        health=None if health_port is None else (LOOPBACK, health_port),
        allow_anonymous_create=allow_anonymous_create,
        read_only=read_only,
        log_level=log_level,
        log_json=log_json,
        tell=told(as_json=as_json or log_json),
    )


Tell = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Called once with what is up: the worker's facts and the API's."""


def told(*, as_json: bool) -> Tell:
    """How it is said what is up: a line each, or one line of JSON."""

    def tell(worker: Mapping[str, Any], api: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps({"started": {**worker, "url": api["url"], "token": api["token"]}}))
        else:
            for line in lines(api["url"], api["token"]):
                click.echo(line)
            announced(dict(worker))
        sys.stdout.flush()

    return tell


class Starting:
    """Waits until both the workers and the API are up, and tells it once."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._lock = tell, threading.Lock()
        self._worker: Mapping[str, Any] | None = None
        self._api: Mapping[str, Any] | None = None
        self._done = False

    def worker(self, facts: Mapping[str, Any]) -> None:
        with self._lock:
            self._worker = facts
            self._look()

    def api(self, facts: Mapping[str, Any]) -> None:
        with self._lock:
            self._api = facts
            self._look()

    def _look(self) -> None:
        if self._worker is not None and self._api is not None and not self._done:
            self._done = True
            self._tell(self._worker, self._api)


def bring_up(
    app: str,
    *,
    host: str,
    port: int,
    processes: int,
    settings: WorkerSettings,
    tell: Tell,
    health: tuple[str, int] | None = None,
    allow_anonymous_create: bool = False,
    read_only: bool = False,
    log_level: str = "info",
    log_json: bool = False,
) -> NoReturn:
    """Bring all of it up and work until told to stop, then exit with the code of that."""
    starting = Starting(tell)
    with listening(host, port) as sock:
        command = [sys.executable, "-m", "tidemill.cli.up_api", "--app", app, "--host", host]
        command += ["--fd", str(sock.fileno()), "--log-level", log_level]
        command += ["--log-json"] * log_json + ["--allow-anonymous-create"] * allow_anonymous_create
        command += ["--read-only"] * read_only
        api = Companion(
            API,
            command,
            up=starting.api,
            failed=lambda why: supervisor.give_up(why),  # noqa: PLW0108  (it is made below)
            keep=[sock.fileno()],
            whisper=secrets.token_urlsafe(32) + "\n",
        )
        supervisor = Supervisor(
            app,
            settings,
            processes=processes,
            migrate=True,
            beside=api,
            health=health,
            log_level=log_level,
            log_json=log_json,
            announce=starting.worker,
            complain=lambda why: click.echo(f"tidemill: {why}", err=True),
        )
        write_logs(log_level, as_json=log_json)
        work(supervisor)
