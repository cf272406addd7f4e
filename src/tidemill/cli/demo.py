"""``tidemill demo``: a small world at work in one command. It is ``tidemill up`` on a store that is thrown away."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from tidemill.cli.serve import door
from tidemill.cli.up import bring_up, told
from tidemill.engine.logs import LEVELS
from tidemill.engine.settings import read_settings
from tidemill.errors import BadSettings

APP = "tidemill.demo.world:app"
SETTINGS: dict[str, Any] = {"concurrency": 50, "threads": 8, "children": 0, "grace": 5.0}


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address the API listens on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one."
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the store in this folder, for the next time.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--log-level", type=click.Choice(LEVELS), default="warning", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Say what was started as JSON.")
def demo(host: str, port: int, keep: Path | None, no_browser: bool, log_level: str, as_json: bool) -> None:
    """Show it at work until Ctrl-C: sample tasks and schedules, a worker and the dashboard, on a store of its own."""
    say = told(as_json=as_json)

    def tell(worker: Mapping[str, Any], api: Mapping[str, Any]) -> None:
        say(worker, api)
        if not as_json:
            _explain(api)
        if not no_browser and sys.stdout.isatty():
            webbrowser.open(door(api["url"], api["token"]))

    with _folder(keep) as folder:
        os.environ["TIDEMILL_STORE"] = f"sqlite:///{quote(str(folder.resolve() / 'demo.db'))}"
        bring_up(
            APP,
            host=host,
            port=port,
            processes=1,
            settings=read_settings(SETTINGS),
            log_level=log_level,
            tell=tell,
        )


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise BadSettings(f"the folder {keep} cannot be made: {why}; name another with --keep") from None
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _explain(api: Mapping[str, Any]) -> None:
    if api["token"] is not None:
        click.echo(f"\n  curl -H 'Authorization: Bearer {api['token']}' '{api['url']}/api/jobs?limit=10'")
    click.echo("  Ctrl-C ends it.")
    sys.stdout.flush()
