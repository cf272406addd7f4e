"""``tidemill mcp``: the tools of an app for AI assistants, over standard input and output."""

from __future__ import annotations

import importlib
from typing import Any

import click

from tidemill.cli.app_argument import app_named
from tidemill.cli.context import opened_app
from tidemill.configuration import value_of
from tidemill.errors import BadSettings


@click.command()
@app_named
@click.option("--act", is_flag=True, help="Offer tools that change jobs; needs TIDEMILL_KEY.")
def mcp(app: str, act: bool) -> None:
    """Serve tools for AI assistants over stdin and stdout.

    The tools read jobs, errors, logs and alerts. The API key in TIDEMILL_KEY decides tenant and role; without one, the
    tools read the app's own tenant and secrets are masked.
    """
    try:
        server: Any = importlib.import_module("tidemill.contrib.mcp")
    except ModuleNotFoundError as missing:
        raise BadSettings(f"tidemill mcp needs {missing.name}: pip install 'tidemill[mcp]'") from None
    with opened_app(app) as opened:
        server.create_server(opened, key=value_of("TIDEMILL_KEY"), act=act).run()
