"""``tidemill definitions``: per-tenant configurations of tasks."""

from __future__ import annotations

import json

import click

from tidemill.cli.completion import definition_keys, task_names
from tidemill.cli.context import CommandContext, ask_first, own_tenant_option, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import read_arguments
from tidemill.cli.screen import (
    Column,
    age,
    heading,
    print_fields,
    print_json,
    print_lines,
    print_table,
    stamp,
)
from tidemill.client.documents import definition_document
from tidemill.client.schedules.definitions import Definitions
from tidemill.domain.schedules import Definition


@click.group(cls=InOrder)
def definitions() -> None:
    """Manage stored configurations of tasks."""


@definitions.command("list")
@click.option("--task", metavar="NAME", shell_complete=task_names, help="Definitions of this task.")
@click.option("--deleted", is_flag=True, help="Include removed ones.")
@tenant_option
@with_context
def list_definitions(context: CommandContext, task: str | None, deleted: bool, tenant: str) -> None:
    """List definitions."""
    definitions = Definitions(context.client).list(task=task, deleted=deleted, tenant=tenant)
    if context.as_json:
        print_json([definition_document(definition) for definition in definitions])
        return
    now = context.now()
    columns = (
        Column("key", flexible=True), Column("task", flexible=True), Column("state"), Column("version", right=True),
        Column("tenant", flexible=True), Column("changed", optional=True), Column("owner", optional=True),
    )  # fmt: skip
    rows = [
        [
            definition.key,
            definition.task,
            _state(definition),
            definition.version,
            definition.tenant,
            age(definition.updated_at, now),
            definition.owner,
        ]
        for definition in definitions
    ]
    print_table(columns, rows, empty="no definitions")


@definitions.command()
@click.argument("key", shell_complete=definition_keys)
@own_tenant_option
@with_context
def show(context: CommandContext, key: str, tenant: str | None) -> None:
    """Show a definition and its versions."""
    face = Definitions(context.client)
    definition = face.get(key, tenant=tenant)
    versions = face.versions(key, tenant=definition.tenant)
    if context.as_json:
        print_json(
            definition_document(definition)
            | {"versions": [definition_document(version.definition) for version in versions]}
        )
        return
    print_fields(
        [
            ("definition", definition.key),
            ("name", definition.name or None),
            ("task", definition.task),
            ("state", _state(definition)),
            ("version", definition.version),
            ("arguments", definition.args),
            ("settings", json.dumps(dict(definition.settings)) if definition.settings else None),
            ("owner", definition.owner),
            (
                "notifications",
                json.dumps(dict(definition.notifications)) if definition.notifications else None,
            ),
            ("tenant", definition.tenant),
            ("id", definition.id),
        ]
    )
    heading("Versions")
    rows = [
        [version.definition.version, stamp(version.created_at), version.created_by, version.definition.args]
        for version in versions
    ]
    columns = (
        Column("version", right=True),
        Column("written"),
        Column("by"),
        Column("arguments", flexible=True),
    )
    print_table(columns, rows, empty="none")


@definitions.command()
@click.argument("key", shell_complete=definition_keys)
@click.argument("pairs", nargs=-1, metavar="[EVENT=CHANNEL[,CHANNEL]]...")
@own_tenant_option
@with_context
def notify(context: CommandContext, key: str, pairs: tuple[str, ...], tenant: str | None) -> None:
    """Set the channels that receive notifications about its jobs.

    Without channels, no notifications are sent.
    """
    context.need_app("channels")
    chosen: dict[str, list[str]] = {}
    for pair in pairs:
        kind, equals, names = pair.partition("=")
        if not equals or not names:
            raise click.UsageError(f"{pair!r} is not EVENT=CHANNEL, for example failed=ops")
        chosen.setdefault(kind, []).extend(names.split(","))
    saved = Definitions(context.client).save(key, notifications=chosen, tenant=tenant)
    _print_result(context, saved, "saved")


@definitions.command()
@click.argument("key", shell_complete=definition_keys)
@own_tenant_option
@with_context
def enable(context: CommandContext, key: str, tenant: str | None) -> None:
    """Enable the schedules of a definition, from now on."""
    _print_result(context, Definitions(context.client).enable(key, tenant=tenant), "enabled")


@definitions.command()
@click.argument("key", shell_complete=definition_keys)
@own_tenant_option
@with_context
def disable(context: CommandContext, key: str, tenant: str | None) -> None:
    """Disable the schedules of a definition."""
    _print_result(context, Definitions(context.client).disable(key, tenant=tenant), "disabled")


@definitions.command()
@click.argument("key", shell_complete=definition_keys)
@click.argument("words", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--force", is_flag=True, help="Also while the definition is disabled, or refuses a second job.")
@own_tenant_option
@with_context
def trigger(
    context: CommandContext, key: str, words: tuple[str, ...], force: bool, tenant: str | None
) -> None:
    """Enqueue a job of a definition now.

    NAME=VALUE overrides the definition's own arguments.
    """
    context.need_app("triggering a definition")
    face = Definitions(context.client)
    definition = face.get(key, tenant=tenant)
    declared = context.registry.get(definition.task)
    own = read_arguments(definition.args, words, declared.arguments.schema())
    names = {word.partition("=")[0] for word in words}
    loaded = declared.arguments.load(own)
    args = {name: value for name, value in loaded.items() if name in names}
    job = face.trigger(key, args=args, force=force, tenant=definition.tenant)
    if context.as_json:
        print_json({"id": str(job.id), "task": job.task, "tenant": job.tenant})
    else:
        print_lines([(str(job.id), "")])


@definitions.command()
@click.argument("key", shell_complete=definition_keys)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@own_tenant_option
@with_context
def remove(context: CommandContext, key: str, yes: bool, tenant: str | None) -> None:
    """Remove a definition with its schedules; versions stay."""
    face = Definitions(context.client)
    definition = face.get(key, tenant=tenant)
    if not yes:
        ask_first(f"remove definition {definition.key} of tenant {definition.tenant} with its schedules?")
    face.remove(key, tenant=definition.tenant)
    _print_result(context, definition, "removed")


def _state(definition: Definition) -> str:
    if definition.deleted_at is not None:
        return "deleted"
    return "enabled" if definition.enabled else "disabled"


def _print_result(context: CommandContext, definition: Definition, word: str) -> None:
    if context.as_json:
        print_json(definition_document(definition))
    else:
        print_lines([(f"definition {definition.key} is {word}", "")])
