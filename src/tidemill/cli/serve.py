"""``tidemill serve``: the dashboard and the HTTP API of an app, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from tidemill.engine.locate import find_app
from tidemill.engine.logs import LEVELS, write_logs
from tidemill.errors import BadSettings


@click.command()
@click.argument("app", envvar="TIDEMILL_APP", metavar="APP")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="0 takes a free one.",
)
@click.option(
    "--allow-anonymous-create",
    is_flag=True,
    help="Jobs may be created without a key, for the app's own tenant.",
)
@click.option("--read-only", is_flag=True, help="Nothing can be changed through it, whatever the key.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@click.option("--json", "as_json", is_flag=True, help="Say what was started as JSON.")
def serve(
    app: str,
    host: str,
    port: int,
    allow_anonymous_create: bool,
    read_only: bool,
    log_level: str,
    log_json: bool,
    as_json: bool,
) -> None:
    """Serve the dashboard and the HTTP API of APP (module:attribute, or TIDEMILL_APP) until told to stop.

    Without a living key it listens on this machine only, and prints a token that opens everything for this run.
    TIDEMILL_SESSION_SECRET signs the dashboard's sessions; without it everybody signs in again after a restart.
    """
    write_logs(log_level, as_json=log_json)
    found: Any = find_app(app)
    try:
        found.serve(
            host,
            port,
            announce=lambda serving: _announce(serving, as_json=as_json or log_json),
            allow_anonymous_create=allow_anonymous_create,
            read_only=read_only,
        )
    except ModuleNotFoundError as missing:
        raise BadSettings(str(missing)) from None
    finally:
        found.close()


def _announce(serving: Any, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"started": {"url": serving.url, "token": serving.token}}))
    else:
        for line in lines(serving.url, serving.token):
            click.echo(line)
    sys.stdout.flush()


def lines(url: str, token: str | None) -> Iterator[str]:
    """Where what is served can be found, for people: the dashboard first, for most of them want nothing else."""
    yield f"  {'open':<8}{door(url, token)}"
    yield f"  {'api':<8}{url}/api"
    yield f"  {'docs':<8}{url}/api/docs"
    if token is not None:
        yield "  there is no living key: only this machine can reach it, and only with this token"
        yield f"  {'token':<8}{token}"


def door(url: str, token: str | None) -> str:
    """The address of the dashboard, which signs in whoever has the token."""
    return f"{url}/" if token is None else f"{url}/sign-in?token={token}"
