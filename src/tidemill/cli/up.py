"""``tidemill up``: schema, runners, duties, dashboard and HTTP API.

The supervisor runs in this process and imports neither the app nor the API. The API runs in a process of its own,
because it imports user code and serves untrusted clients, which must never delay the heartbeats.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.log_options import taken_logs
from tidemill.cli.oidc_options import oidc_setting, taken_oidc, with_oidc_options
from tidemill.cli.serve import lines
from tidemill.cli.worker import announced, work, worker_options
from tidemill.engine.log_formats import LogOutput, write_output
from tidemill.engine.store_shares import Wanted, chosen_stores
from tidemill.engine.supervisor.sidecar import Sidecar
from tidemill.engine.supervisor.supervisor import Supervisor, need_posix
from tidemill.engine.worker_settings import WorkerSettings, default_processes, read_settings
from tidemill.sockets import listening

API = "the HTTP API"


@click.command()
@app_named
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that the dashboard and the API listen on."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 picks a free one."
)
@worker_options
@click.option(
    "--allow-anonymous-create",
    is_flag=True,
    help="Allow creating jobs without a key, for the app's own tenant.",
)
@click.option("--read-only", is_flag=True, help="Refuse every change over HTTP, whatever the key.")
@with_oidc_options
@click.option(
    "--health-port",
    type=click.IntRange(0, 65535),
    metavar="P",
    help="Serve the worker's /livez, /readyz and /metrics on this port; 0 picks a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses and the configuration as JSON.")
def up(
    app: str,
    host: str,
    port: int,
    processes: int | None,
    stores: dict[str, int | None],
    shards: dict[str, int | None],
    allow_anonymous_create: bool,
    read_only: bool,
    health_port: int | None,
    health_host: str,
    reloads: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    """Migrate, then run workers, schedules, HTTP API and dashboard.

    APP is module:attribute, such as shop:app.

    SIGTERM or Ctrl-C stops everything: running jobs have --grace seconds, open requests at most five. A second
    signal skips the grace period, a third one kills. SIGHUP reloads the code without a pause.
    """
    need_posix("tidemill up")
    oidc = taken_oidc(settings)
    oidc_setting(oidc)  # refuse wrong settings before anything starts
    logs = taken_logs(settings)
    processes = processes or (1 if reloads else default_processes())
    bring_up(
        app,
        host=host,
        port=port,
        processes=processes,
        stores=chosen_stores(stores, shards),
        settings=read_settings({**settings, "pumps": 1 if processes > 1 else 2}),
        health=None if health_port is None else (health_host, health_port),
        allow_anonymous_create=allow_anonymous_create,
        read_only=read_only,
        oidc=oidc,
        reload=reloads,
        logs=logs,
        tell=told(as_json=as_json or logs.as_json),
    )


Tell = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Called once, with the facts of the worker and of the API."""


def told(*, as_json: bool) -> Tell:
    """Return a function that announces the start, as text lines or as one JSON line."""

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
    """Waits until both the workers and the API are up, and announces it once."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._lock = tell, threading.Lock()
        self._worker: Mapping[str, Any] | None = None
        self._api: Mapping[str, Any] | None = None
        self._done = False

    def worker(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            self._worker = values
            self._look()

    def api(self, values: Mapping[str, Any]) -> None:
        with self._lock:
            self._api = values
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
    stores: Wanted | None = None,
    health: tuple[str, int] | None = None,
    allow_anonymous_create: bool = False,
    read_only: bool = False,
    oidc: Mapping[str, Any] | None = None,
    reload: bool = False,
    logs: LogOutput | None = None,
) -> NoReturn:
    """Start everything, run until stopped, then exit with the supervisor's exit code."""
    starting, logs = Starting(tell), logs or LogOutput()
    with listening(host, port) as sock:
        command = [sys.executable, "-m", "tidemill.cli.up_api", "--app", app, "--host", host]
        command += ["--fd", str(sock.fileno()), *logs.words()]
        command += ["--allow-anonymous-create"] * allow_anonymous_create
        command += ["--read-only"] * read_only
        command += [] if oidc is None else ["--oidc", json.dumps(oidc)]
        api = Sidecar(
            API,
            command,
            up=starting.api,
            failed=lambda why: supervisor.give_up(why),  # noqa: PLW0108  (the variable is assigned below)
            keep=[sock.fileno()],
            whisper=secrets.token_urlsafe(32) + "\n",
        )
        supervisor = Supervisor(
            app,
            settings,
            processes=processes,
            stores=stores,
            migrate=True,
            reload=reload,
            beside=api,
            health=health,
            logs=logs,
            announce=starting.worker,
            complain=lambda why: click.echo(f"tidemill: {why}", err=True),
        )
        write_output(logs)
        work(supervisor)
