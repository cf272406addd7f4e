"""``tidemill access``: the table of acts, and why a key may or may not do one."""

from __future__ import annotations

import click

from tidemill.cli.completion import key_ids, task_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.screen import Column, print_json, print_lines, print_table
from tidemill.client.sessions import AccessApi


@click.group(cls=InOrder)
def access() -> None:
    """Explain permissions."""


@access.command()
@with_context
def acts(context: CommandContext) -> None:
    """List every act with the role that it needs."""
    table = AccessApi(context.app_client).acts()
    if context.as_json:
        print_json(
            [
                {
                    "act": act,
                    "description": rule.words,
                    "role": rule.role.value,
                    "everywhere": rule.everywhere,
                    "second_role": None if rule.second is None else rule.second.value,
                }
                for act, rule in table.items()
            ]
        )
        return
    columns = (
        Column("act"),
        Column("role"),
        Column("tenants"),
        Column("in production"),
        Column("allows", flexible=True),
    )
    rows = [
        [
            act,
            rule.role.value,
            "all" if rule.everywhere else "own",
            None if rule.second is None else rule.second.value,
            rule.words,
        ]
        for act, rule in table.items()
    ]
    print_table(columns, rows, empty="no acts")


@access.command()
@click.argument("key", shell_complete=key_ids)
@click.argument("act")
@click.argument("task", required=False, shell_complete=task_names)
@click.option("--queue", metavar="NAME", help="Queue of the job.  [default: that of the task]")
@click.option("--definition", metavar="KEY", help="Key of a definition or schedule.")
@click.option("--in-tenant", metavar="NAME", help="Tenant, for a key with roles in several tenants.")
@with_context
def explain(
    context: CommandContext,
    key: str,
    act: str,
    task: str | None,
    queue: str | None,
    definition: str | None,
    in_tenant: str | None,
) -> None:
    """Explain whether a key may do an act, optionally on a task.

    The command exits with 1 if it may not.
    """
    verdict = AccessApi(context.app_client).explain(
        key, act, task=task, queue=queue, definition=definition, tenant=in_tenant
    )
    if context.as_json:
        print_json({"act": act, **verdict._asdict()})
    else:
        word = ("allowed", "green") if verdict.allowed else ("refused", "red")
        print_lines([word, (verdict.reason, "")])
    if not verdict.allowed:
        raise SystemExit(1)
