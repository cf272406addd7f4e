"""``tidemill db``: the schema of a store."""

from __future__ import annotations

import click

from tidemill.cli.desk import Desk, at_desk
from tidemill.cli.screen import STYLES, print_json, print_lines
from tidemill.errors import BadSettings
from tidemill.stores.sql import migrations


@click.group()
def db() -> None:
    """The schema of a store: bring it up to date, or look at it."""


@db.command()
@at_desk
def migrate(desk: Desk) -> None:
    """Bring the tables up to this version; safe to run from several places at once."""
    applied = desk.store.migrate()
    state = desk.store.schema()
    if desk.as_json:
        print_json({"store": desk.store.url, "applied": applied, "version": state.version})
        return
    done = [f"applied {name}" for name in applied] or ["nothing to apply"]
    print_lines([(line, "") for line in (*done, f"{desk.store.url} has schema version {state.version}")])


@db.command()
@at_desk
def status(desk: Desk) -> None:
    """Say which version the tables have; exit code 1 if they are out of date."""
    state = desk.store.schema()
    where = desk.store.url
    if desk.as_json:
        facts = {"store": where, "version": state.version, "wanted": state.wanted}
        print_json(facts | {"pending": list(state.pending)})
    else:
        print_lines([(f"{where} has schema version {state.version} of {state.wanted}", "")])
        print_lines([(f"pending {name}", STYLES["warn"]) for name in state.pending])
    if state.pending:
        click.get_current_context().exit(1)


@db.command()
@click.argument("dialect", metavar="postgres|sqlite|URL")
def sql(dialect: str) -> None:
    """Print the whole schema as one SQL text, to read or to apply to an empty database with a tool of your own."""
    scheme = dialect.partition("://")[0].lower()
    names = {"postgres": "postgres", "postgresql": "postgres", "sqlite": "sqlite"}
    if scheme not in names:
        raise BadSettings(f"there is no SQL for {dialect!r}; give postgres, sqlite or a store's URL")
    click.echo(migrations.script(names[scheme]), nl=False)
