"""``tidemill tasks``: list, show, pause and resume tasks.

``tasks_set`` has the verb that changes settings.
"""

from __future__ import annotations

import json
from typing import Any

import click

from tidemill.cli import pause_actions
from tidemill.cli.completion import task_names
from tidemill.cli.context import CommandContext, tenant_option, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.known_names import NOTHING, check_known
from tidemill.cli.screen import (
    Column,
    heading,
    print_fields,
    print_json,
    print_lines,
    print_table,
    span,
    thousands,
)
from tidemill.cli.task_settings import set_document, set_task, set_words, task_rule, task_setting
from tidemill.cli.tasks_check import check_tasks
from tidemill.client.documents import pause_document, seconds
from tidemill.client.limits import NO_LIMIT
from tidemill.client.stats.loads import is_living, waiting_tasks
from tidemill.domain.filters import JobFilter
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.retry import policy_to_data, policy_words
from tidemill.domain.states import LIVE, JobState
from tidemill.errors import TaskNotFound
from tidemill.tasks.task import Declared

SHOWN = (JobState.PENDING, JobState.RUNNING, JobState.SCHEDULED)


@click.group(cls=InOrder)
def tasks() -> None:
    """List, pause and configure tasks."""


tasks.add_command(set_task)
tasks.add_command(check_tasks)


@tasks.command("list")
@tenant_option
@with_context
def list_tasks(context: CommandContext, tenant: str) -> None:
    """List tasks with their jobs.

    Without an app, the list holds the tasks of live workers and of waiting jobs.
    """
    names = _names(context, tenant)
    pauses = _pauses(context)
    now = context.now()
    counts = {
        name: context.store.count(JobFilter(tenant, states=LIVE, tasks=frozenset({name}))) for name in names
    }
    if context.as_json:
        print_json([_document(context, name, counts[name], pauses.get(name)) for name in names])
        return
    columns = (
        Column("task", flexible=True), Column("queue", flexible=True, optional=True),
        *(Column(state.value, right=True) for state in SHOWN), Column("attempts", optional=True, right=True),
        Column("timeout", optional=True, right=True), Column("paused", flexible=True, optional=True),
        Column("description", flexible=True, optional=True),
    )  # fmt: skip
    rows = []
    for name in names:
        task = context.registry.get(name) if name in context.registry else None
        rows.append(
            [
                name,
                task and task.options.queue,
                *(thousands(counts[name].get(state, 0)) for state in SHOWN),
                task and task.options.retry.max_attempts,
                task and span(task.options.timeout),
                pause_actions.pause_words(pauses.get(name), now),
                task and task.summary,
            ]
        )
    print_table(columns, rows, empty="no tasks: give --app to see what is declared")


@tasks.command()
@click.argument("name", shell_complete=task_names)
@tenant_option
@with_context
def show(context: CommandContext, name: str, tenant: str) -> None:
    """Show a task: options, arguments and jobs by status."""
    task = context.registry.get(name) if context.app else None
    counts = context.store.count(JobFilter(tenant, tasks=frozenset({name})))
    pause = _pauses(context).get(name)
    if task is None and not counts and pause is None and name not in _names(context, tenant):
        raise TaskNotFound(f"no job and no worker knows a task {name!r}; give --app to see what is declared")
    document = _document(context, name, counts, pause)
    document["set"] = set_document(task_setting(context, name), task_rule(context, name))
    if context.as_json:
        if task is not None:
            document["schema"] = task.arguments.schema()
        print_json(document)
        return
    lines: list[tuple[str, object]] = [("task", name)]
    if task is not None:
        lines += _option_lines(task)
    lines.append(("set", set_words(task_setting(context, name), task_rule(context, name))))
    lines.append(("paused", pause_actions.pause_words(pause, context.now())))
    print_fields(lines)
    if task is not None:
        heading("Arguments")
        _print_arguments(task.arguments.schema())
    heading("Jobs")
    rows = [(state.value, thousands(counts[state])) for state in JobState if state in counts]
    print_table((Column("status"), Column("jobs", right=True)), rows, empty="none")


def _option_lines(task: Declared) -> list[tuple[str, object]]:
    options = task.options
    return [
        ("description", task.summary),
        ("queue", options.queue),
        ("priority", options.priority),
        ("retry", policy_words(options.retry)),
        ("timeout", span(options.timeout)),
        ("isolation", options.isolation_name),
        ("scope", options.scope),
        ("at a time", options.max_concurrent or NO_LIMIT),
        ("unique", None if options.unique is None else options.unique.words()),
        ("tags", ", ".join(options.tags) or None),
        ("owner", options.owner),
        ("stages", ", ".join(options.stages) or None),
    ]


@tasks.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=task_names)
@click.option("--reason", metavar="TEXT", help="Reason, shown with the pause.")
@click.option("--new", is_flag=True, help="Allow a task that is not known yet.")
@with_context
def pause(context: CommandContext, names: tuple[str, ...], reason: str | None, new: bool) -> None:
    """Stop starting jobs of these tasks; running jobs finish."""
    if not new:
        check_known(context, PauseKind.TASK, names, hint="pass --new to pause it before its first job")
    pause_actions.pause(context, PauseKind.TASK, names, reason)


@tasks.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=task_names)
@with_context
def resume(context: CommandContext, names: tuple[str, ...]) -> None:
    """Resume paused tasks."""
    check_known(context, PauseKind.TASK, names, hint=NOTHING)
    pause_actions.resume(context, PauseKind.TASK, names)


def _names(context: CommandContext, tenant: str) -> list[str]:
    if context.app:
        return context.registry.names()
    now = context.now()
    served = {name for worker in context.store.workers() if is_living(worker, now) for name in worker.tasks}
    return sorted(served | set(waiting_tasks(context.store, tenant=tenant)))


def _pauses(context: CommandContext) -> dict[str, Pause]:
    return {pause.name: pause for pause in context.store.pauses() if pause.kind is PauseKind.TASK}


def _document(
    context: CommandContext, name: str, counts: dict[JobState, int], pause: Pause | None
) -> dict[str, object]:
    document: dict[str, object] = {
        "name": name,
        "counts": {state.value: number for state, number in counts.items()},
        "paused": None if pause is None else pause_document(pause),
    }
    if name in context.registry:
        task = context.registry.get(name)
        options = task.options
        document |= {
            "description": task.summary,
            "queue": options.queue,
            "priority": options.priority,
            "retry": policy_to_data(options.retry) or {"kind": type(options.retry).__name__},
            "max_attempts": options.retry.max_attempts,
            "timeout": seconds(options.timeout),
            "isolation": options.isolation_name,
            "scope": options.scope,
            "max_concurrent": options.max_concurrent,
            "tags": list(options.tags),
            "owner": options.owner,
            "stages": list(options.stages),
        }
    return document


def _print_arguments(schema: dict[str, Any]) -> None:
    properties: dict[str, Any] = schema.get("properties", {})
    if not properties:
        print_lines([("none", "dim")])
        return
    needed = set(schema.get("required", ()))
    rows = [
        [
            name,
            _kind(field),
            "required"
            if name in needed
            else f"default {json.dumps(field['default'])}"
            if "default" in field
            else "optional",
        ]
        for name, field in properties.items()
    ]
    print_table(
        (Column("name"), Column("type", flexible=True), Column("given", flexible=True)), rows, empty=""
    )


def _kind(field: dict[str, Any]) -> str:
    """Describe in a word or two what a schema accepts."""
    if "anyOf" in field:
        return " or ".join(_kind(choice) for choice in field["anyOf"])
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    kind = str(field.get("type", "anything"))
    return f"{kind} ({field['format']})" if "format" in field else kind
