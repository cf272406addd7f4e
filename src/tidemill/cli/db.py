"""``tidemill db``: migrate and inspect the schema of a store."""

from __future__ import annotations

import click

from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import STYLES, print_json, print_lines
from tidemill.errors import BadSettings
from tidemill.stores.base import SchemaStatus
from tidemill.stores.sql import migrations
from tidemill.stores.sql.named_queries import load


@click.group(cls=InOrder)
def db() -> None:
    """Migrate and inspect the database schema."""


@db.command()
@with_context
def migrate(context: CommandContext) -> None:
    """Migrate the schema; safe to run concurrently."""
    applied = context.store.migrate()
    state = context.store.schema()
    if context.as_json:
        document = {"store": context.store.url, "applied": applied, "version": state.version}
        print_json(document | {"serves": state.serves})
        return
    done = [f"applied {name}" for name in applied] or ["nothing to apply"]
    print_lines([(line, "") for line in (*done, f"{context.store.url} has {standing(state)}")])


@db.command()
@with_context
def status(context: CommandContext) -> None:
    """Show the schema version and pending migrations.

    The exit code is 1 if migrations are pending.
    """
    state = context.store.schema()
    where = context.store.url
    if context.as_json:
        document = {"store": where, "version": state.version, "wanted": state.wanted, "serves": state.serves}
        print_json(document | {"pending": list(state.pending)})
    else:
        print_lines([(f"{where} has {standing(state)}", "")])
        print_lines([(f"pending {name}", STYLES["warn"]) for name in state.pending])
    if state.pending:
        click.get_current_context().exit(1)


def standing(state: SchemaStatus) -> str:
    """Describe the schema version, the version this code needs, and the oldest code that works with it."""
    words = f"schema version {state.version} of {state.wanted}"
    if not state.version or state.serves == state.version:
        return words
    return f"{words}; it serves code from version {state.serves} on"


@db.command()
@click.argument("dialect", metavar="postgres|sqlite|URL")
@click.argument("query", required=False)
def sql(dialect: str, query: str | None) -> None:
    """Print the schema as SQL, or the statement of one QUERY."""
    scheme = dialect.partition("://")[0].lower()
    names = {"postgres": "postgres", "postgresql": "postgres", "sqlite": "sqlite"}
    if scheme not in names:
        raise BadSettings(f"there is no SQL for {dialect!r}; give postgres, sqlite or a store's URL")
    if query is None:
        click.echo(migrations.script(names[scheme]), nl=False)
        return
    queries = load(names[scheme])
    if query not in queries:
        raise BadSettings(f"unknown query {query!r}; expected one of {', '.join(queries)}")
    click.echo(queries[query].text(), nl=False)
