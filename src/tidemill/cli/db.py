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
    """Migrate the schema; safe to run concurrently.

    An app with several stores has all of them migrated, unless --store-name chooses one.
    """
    found: list[dict[str, object]] = []
    for name, one in context.each_store(archives=True):
        applied = one.store.migrate()
        state = one.store.schema()
        document = {"store": one.store.url, "applied": applied, "version": state.version}
        found.append(_named(name) | document | {"serves": state.serves})
        if not context.as_json:
            done = [f"applied {name}" for name in applied] or ["nothing to apply"]
            print_lines([(line, "") for line in (*done, f"{_label(name, one)} has {standing(state)}")])
    if context.as_json:
        print_json(found[0] if len(found) == 1 else {"stores": found})


def _named(name: str | None) -> dict[str, object]:
    return {} if name is None else {"name": name}


def _label(name: str | None, context: CommandContext) -> str:
    return context.store.url if name is None else f"{name}: {context.store.url}"


@db.command()
@with_context
def status(context: CommandContext) -> None:
    """Show the schema version and pending migrations.

    The exit code is 1 if migrations are pending. An app with several stores has all of them shown, unless --store-name
    chooses one.
    """
    found: list[dict[str, object]] = []
    for name, one in context.each_store(archives=True):
        state = one.store.schema()
        document = {"store": one.store.url, "version": state.version, "wanted": state.wanted}
        document |= {"serves": state.serves, "pending": list(state.pending)}
        found.append(_named(name) | document)
        if not context.as_json:
            print_lines([(f"{_label(name, one)} has {standing(state)}", "")])
            print_lines([(f"pending {pending}", STYLES["warn"]) for pending in state.pending])
    if context.as_json:
        print_json(found[0] if len(found) == 1 else {"stores": found})
    if any(document["pending"] for document in found):
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
