"""``tidemill serve``: dashboard and HTTP API of an app, in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.context import opened_app
from tidemill.cli.log_options import taken_logs, with_log_options
from tidemill.cli.oidc_options import oidc_setting, taken_oidc, with_oidc_options
from tidemill.engine.log_formats import write_output
from tidemill.errors import BadSettings


@click.command()
@app_named
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port; 0 picks a free one.",
)
@click.option(
    "--allow-anonymous-create",
    is_flag=True,
    help="Allow creating jobs without a key, for the app's own tenant.",
)
@click.option("--read-only", is_flag=True, help="Refuse every change, whatever the key.")
@with_oidc_options
@with_log_options
@click.option("--json", "as_json", is_flag=True, help="Print the address and the token as JSON.")
def serve(
    app: str,
    host: str,
    port: int,
    allow_anonymous_create: bool,
    read_only: bool,
    as_json: bool,
    **log_options: Any,
) -> None:
    """Serve the dashboard and the HTTP API.

    APP is module:attribute, such as shop:app.

    Without an API key the server accepts connections from this machine only, and prints a token for this run.
    TIDEMILL_SESSION_SECRET signs the dashboard's messages; set it if several processes serve one dashboard.
    """
    oidc = oidc_setting(taken_oidc(log_options))
    logs = taken_logs(log_options)
    write_output(logs)
    opened: Any = opened_app(app)
    try:
        opened.serve(
            host,
            port,
            announce=lambda serving: _announce(serving, as_json=as_json or logs.as_json),
            allow_anonymous_create=allow_anonymous_create,
            read_only=read_only,
            **oidc,
        )
    except ModuleNotFoundError as missing:
        raise BadSettings(str(missing)) from None
    finally:
        opened.close()


def _announce(serving: Any, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"started": {"url": serving.url, "token": serving.token}}))
    else:
        for line in lines(serving.url, serving.token):
            click.echo(line)
    sys.stdout.flush()


def lines(url: str, token: str | None) -> Iterator[str]:
    """Yield the addresses for a person to read, the dashboard first."""
    yield f"  {'open':<8}{door(url, token)}"
    yield f"  {'api':<8}{url}/api"
    yield f"  {'docs':<8}{url}/api/docs"
    if token is not None:
        yield "  no API keys yet: only reachable from this machine, with this token"
        yield f"  {'token':<8}{token}"


def door(url: str, token: str | None) -> str:
    """Return the address of the dashboard, with the token that signs the user in."""
    return f"{url}/" if token is None else f"{url}/sign-in?token={token}"
