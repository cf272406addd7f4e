"""Filter options of commands that search for jobs or archived jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.completion import (
    definition_keys,
    job_ids,
    queue_names,
    schedule_keys,
    task_names,
    tenant_names,
    worker_names,
)
from tidemill.cli.context import CommandContext
from tidemill.cli.known_names import check_known, unknown_name
from tidemill.cli.parsers import argument, duration, metadata, moment, reference
from tidemill.cli.parsers import instant as an_instant
from tidemill.cli.suggestions import OneOf
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import PauseKind
from tidemill.domain.states import ENDED, JobState

Command = Callable[..., None]
Option = Callable[[Command], Command]

WHEN = "ISO timestamp, or an age: 2h means two hours ago."

_OPTIONS: dict[str, Option] = {
    "status": click.option("--status", multiple=True, type=OneOf([state.value for state in JobState]),
                           metavar="STATUS", help="Status, such as pending or failed; repeatable."),
    "task": click.option("--task", multiple=True, metavar="NAME", shell_complete=task_names, help="Task; repeatable."),
    "queue": click.option("--queue", multiple=True, metavar="NAME", shell_complete=queue_names, help="Queue; repeatable."),
    "tenant": click.option("--tenant", metavar="NAME", shell_complete=tenant_names, help="Tenant.  [default: all tenants]"),
    "tag": click.option("--tag", metavar="TAG", help="Tag."),
    "text": click.option("--text", metavar="TEXT",
                         help="Text in the id, task, tags, arguments or error; case-insensitive."),
    "args": click.option("--arg", "args", type=argument, multiple=True, metavar="NAME=VALUE",
                         help="Value of an argument, such as account=42; repeatable."),
    "error": click.option("--error", metavar="CLASS", help="Class of the error, such as ConnectionError."),
    "error_group": click.option("--error-group", metavar="FINGERPRINT",
                                help="Group of errors, as in tidemill errors list."),
    "worker": click.option("--worker", metavar="NAME", shell_complete=worker_names, help="Worker of the last execution; its name or its id."),
    "took_over": click.option("--took-over", type=duration, metavar="TIME", help="Last execution took longer, such as 5s."),
    "correlation_id": click.option("--correlation-id", metavar="ID", help="Correlation id."),
    "parent_id": click.option("--parent", "parent_id", metavar="ID", shell_complete=job_ids, help="Jobs that this job enqueued."),
    "definition": click.option("--definition", metavar="KEY", shell_complete=definition_keys, help="Jobs of this definition; its key or its id."),
    "definition_version": click.option("--definition-version", type=click.IntRange(1), metavar="N",
                                       help="Version of --definition."),
    "schedule": click.option("--schedule", metavar="KEY", shell_complete=schedule_keys, help="Jobs of this schedule; its key or its id."),
    "fire_at": click.option("--fire-at", type=an_instant, metavar="INSTANT", help="Time of a fire of --schedule."),
    "flow": click.option("--flow", metavar="ID", help="Jobs of this flow or batch."),
    "reference": click.option("--reference", type=reference, metavar="KIND:ID", help="Reference, such as user:42."),
    "metadata": click.option("--metadata", type=metadata, multiple=True, metavar="KEY=VALUE", help="Metadata; repeatable."),
    "created_after": click.option("--created-after", type=moment, metavar="WHEN", help=WHEN),
    "created_before": click.option("--created-before", type=moment, metavar="WHEN", help=WHEN),
}  # fmt: skip
"""Options by the name of their parameter of ``app.jobs.list``."""

_ARCHIVED: dict[str, Option] = _OPTIONS | {
    "status": click.option("--status", multiple=True, type=OneOf(sorted(state.value for state in ENDED)),
                           metavar="STATUS", help="Final status, such as failed; repeatable."),
}  # fmt: skip


def tier_option(default: str) -> Option:
    """Add ``--tier`` to a command, which receives the choice as ``tiers``."""
    return click.option(
        "--tier",
        "tiers",
        multiple=True,
        metavar="TIER",
        help="live, tables (also archived jobs in databases), all (also those in files), or a tier's name; repeatable."
        f"  [default: {default}]",
    )


class Where:
    """The filter options that the user passed."""

    def __init__(self, typed: dict[str, Any]) -> None:
        self._typed = {name: value for name, value in typed.items() if value not in (None, ())}

    @property
    def narrows(self) -> bool:
        """Whether there is a condition other than the tenant."""
        return bool(set(self._typed) - {"tenant"})

    def has(self, condition: str) -> bool:
        """Whether there is this condition."""
        return condition in self._typed

    def check_names(self, context: CommandContext) -> None:
        """Raise an error for a task or queue that nothing uses, before an action on the matching jobs."""
        for kind in (PauseKind.TASK, PauseKind.QUEUE):
            check_known(context, kind, self._typed.get(kind.value, ()))

    def unknown(self, context: CommandContext) -> str | None:
        """Return why the filter matches nothing if it names a task, queue or tenant that nothing uses."""
        for kind in (PauseKind.TASK, PauseKind.QUEUE, PauseKind.TENANT):
            typed = self._typed.get(kind.value, ())
            names = [typed] if isinstance(typed, str) else typed
            problem = unknown_name(context, kind, [name for name in names if name != ALL_TENANTS])
            if problem is not None:
                _, words, close = problem
                return f"{words}; {close}" if close else words
        return None

    def of(self, context: CommandContext) -> dict[str, Any]:
        """Return the arguments of ``app.jobs``. Ages are converted with the store's time."""
        conditions = dict(self._typed)
        conditions.setdefault("tenant", ALL_TENANTS)
        for name in ("created_after", "created_before"):
            if isinstance(conditions.get(name), timedelta):
                conditions[name] = context.now() - conditions[name]
        if "parent_id" in conditions:
            conditions["parent_id"] = context.find(conditions["parent_id"])[0]
        if "metadata" in conditions:
            conditions["metadata"] = dict(conditions["metadata"])
        if "args" in conditions:
            conditions["args"] = dict(conditions["args"])
        return conditions


def filtered(command: Command) -> Command:
    """Add the filter options to a command, which receives them as ``where``."""
    return _with(_OPTIONS, command)


def archive_filtered(command: Command) -> Command:
    """Add the filter options for archived jobs to a command, which receives them as ``where``."""
    return _with(_ARCHIVED, command)


def _with(options: Mapping[str, Option], command: Command) -> Command:
    @functools.wraps(command)
    def called(*args: Any, **kwargs: Any) -> None:
        where = Where({name: kwargs.pop(name) for name in options})
        command(*args, where=where, **kwargs)

    decorated: Command = called
    for option in reversed(list(options.values())):
        decorated = option(decorated)
    return decorated
