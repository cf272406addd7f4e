"""``tidemill db``: the schema of a store."""

from __future__ import annotations

from urllib.parse import urlsplit

import click

from tidemill.cli.options import json_option, opened, show, store_option
from tidemill.errors import BadSettings
from tidemill.stores.sql import migrations


@click.group()
def db() -> None:
    """The schema of a store: bring it up to date, or look at it."""


@db.command()
@store_option
@json_option
def migrate(url: str, as_json: bool) -> None:
    """Bring the tables up to this version; safe to run from several places at once."""
    with opened(url) as store:
        applied = store.migrate()
        state = store.schema()
        where = store.url
    done = "\n".join(f"applied {name}" for name in applied) if applied else "nothing to apply"
    text = f"{done}\n{where} has schema version {state.version}"
    show({"store": where, "applied": applied, "version": state.version}, text, as_json=as_json)


@db.command()
@store_option
@json_option
@click.pass_context
def status(context: click.Context, url: str, as_json: bool) -> None:
    """Say which version the tables have; exit code 1 if they are out of date."""
    with opened(url) as store:
        state = store.schema()
        where = store.url
    facts = {"store": where, "version": state.version, "wanted": state.wanted, "pending": list(state.pending)}
    waiting = "".join(f"\npending {name}" for name in state.pending)
    show(facts, f"{where} has schema version {state.version} of {state.wanted}{waiting}", as_json=as_json)
    if state.pending:
        context.exit(1)


@db.command()
@click.argument("dialect", metavar="postgres|sqlite|URL")
def sql(dialect: str) -> None:
    """Print the whole schema as one SQL text, to read or to apply to an empty database with a tool of your own."""
    scheme = urlsplit(dialect).scheme or dialect
    names = {"postgres": "postgres", "postgresql": "postgres", "sqlite": "sqlite"}
    if scheme not in names:
        raise BadSettings(f"there is no SQL for {dialect!r}; give postgres, sqlite or a store's URL")
    click.echo(migrations.script(names[scheme]), nl=False)
