"""Test kit of the CLI: an app in its own file, and in-process calls of commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner, Result
from tests.grounds import new_file

from tidemill import App
from tidemill.cli import commands
from tidemill.engine.app_lookup import find_app

SHOP = '''
from datetime import timedelta

from tidemill import App, Context, PermanentError, Review

app = App({url!r})


@app.task(queue="mail", max_retries=2, timeout=timedelta(minutes=2))
def send(to: str, ctx: Context, size: int = 1) -> str:
    """Send one letter."""
    ctx.progress(0.5, "half")
    ctx.log("sent", to=to)
    return f"sent to {{to}}"


@app.task
def look(what: str) -> None:
    raise Review("is this right?", output={{"what": what}})


@app.task
def fail(words: str) -> None:
    raise PermanentError(words)
'''


class Shop(NamedTuple):
    """An app in its own folder that commands find by name."""

    name: str
    url: str

    @property
    def where(self) -> str:
        return f"{self.name}:app"

    def app(self) -> App:
        """The app, imported again because each command closes its own."""
        sys.modules.pop(self.name, None)
        found: Any = find_app(self.where)
        assert isinstance(found, App)
        return found

    def run(self, *words: str, **rest: Any) -> Result:
        """Run a command with ``--app``."""
        sys.modules.pop(self.name, None)
        return call(*words, "--app", self.where, **rest)

    def json(self, *words: str) -> Any:
        """The JSON output of a successful command."""
        done = self.run(*words, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    def drain(self) -> None:
        """Run the due jobs."""
        with self.app() as app:
            app.testing().drain()


def make_shop(folder: Path, url: str | None = None) -> Shop:
    """Write the module of an app, by default with a SQLite file in the same folder as its store."""
    name = f"shop_{folder.name.replace('-', '_')}"
    address = url or new_file(folder)
    (folder / f"{name}.py").write_text(SHOP.format(url=address), encoding="utf-8")
    return Shop(name, address)


def call(*words: str, env: dict[str, str] | None = None, input: str | None = None) -> Result:  # noqa: A002
    """Run a command in this process, with only the arguments and ``env`` to select the app and the store."""
    clean: dict[str, str | None] = dict.fromkeys(
        ("TIDEMILL_APP", "TIDEMILL_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE")
    )
    done = CliRunner().invoke(commands, list(words), env={**clean, **(env or {})}, input=input)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def terminal(columns: int, **more: str) -> dict[str, str]:
    """The environment of a terminal with this number of columns."""
    return {"FORCE_COLOR": "1", "COLUMNS": str(columns), "TERM": "xterm-256color", **more}
