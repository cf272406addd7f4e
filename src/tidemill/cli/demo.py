"""``tidemill demo``: sample tasks and the dashboard on a temporary store.

It is ``tidemill up`` with the app in ``tidemill.demo``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from tidemill.cli.serve import door
from tidemill.cli.suggestions import OneOf
from tidemill.cli.up import bring_up, told
from tidemill.engine.log_formats import LEVELS, LogOutput
from tidemill.engine.supervisor.supervisor import need_posix
from tidemill.engine.worker_settings import read_settings
from tidemill.errors import BadSettings

APP = "tidemill.demo.sample_app:app"
HISTORY = "tidemill.demo.history"
SETTINGS: dict[str, Any] = {"concurrency": 50, "threads": 8, "children": 0, "grace": 5.0}


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address that the dashboard and the API listen on."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0 picks a free one."
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the store in this folder between runs.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option(
    "--log-level",
    type=OneOf(LEVELS),
    default="warning",
    show_default=True,
    help="Lowest level to log.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the addresses as JSON.")
def demo(host: str, port: int, keep: Path | None, no_browser: bool, log_level: str, as_json: bool) -> None:
    """Run sample tasks and schedules with the dashboard.

    The demo uses a store of its own and runs until Ctrl-C.
    """
    need_posix("tidemill demo")
    say = told(as_json=as_json)

    def tell(worker: Mapping[str, Any], api: Mapping[str, Any]) -> None:
        say(worker, api)
        if not as_json:
            _explain(api)
        if not no_browser and sys.stdout.isatty():
            webbrowser.open(door(api["url"], api["token"]))

    with _folder(keep) as folder:
        os.environ["TIDEMILL_STORE"] = url = (
            f"sqlite:///{quote(str(folder.resolve() / 'demo.db'))}?synchronous=normal"
        )
        _write_history(url, as_json=as_json)
        bring_up(
            APP,
            host=host,
            port=port,
            processes=1,
            settings=read_settings(SETTINGS),
            logs=LogOutput(log_level),
            tell=tell,
        )


def _write_history(url: str, *, as_json: bool) -> None:
    """Fill a new store with a day of ended jobs, in a process of its own: this one imports no app."""
    if not as_json:
        click.echo("  writing a day of sample jobs …")
        sys.stdout.flush()
    code = subprocess.call([sys.executable, "-m", HISTORY, url])  # noqa: S603  (our own module)
    if code:
        click.echo(
            f"  the sample jobs could not be written ({HISTORY} ended with {code}); going on without",
            err=True,
        )


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise BadSettings(
                f"the folder {keep} cannot be created: {why}; name another with --keep"
            ) from None
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _explain(api: Mapping[str, Any]) -> None:
    if api["token"] is not None:
        click.echo(f"\n  curl -H 'Authorization: Bearer {api['token']}' '{api['url']}/api/jobs?limit=10'")
    click.echo("  Press Ctrl-C to stop.")
    sys.stdout.flush()
