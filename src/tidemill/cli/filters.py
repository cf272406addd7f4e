"""The options that say which jobs are meant: one for each condition of ``app.jobs.list``, or of the archive's search."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.desk import Desk
from tidemill.cli.reading import metadata, moment, reference
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import ENDED, JobState

Command = Callable[..., None]
Option = Callable[[Command], Command]

_WHEN = "An ISO instant, or 2h for two hours ago."

_OPTIONS: dict[str, Option] = {
    "status": click.option("--status", multiple=True, type=click.Choice([state.value for state in JobState]),
                           metavar="STATUS", help="One of the states, such as pending or failed; may be repeated."),
    "task": click.option("--task", multiple=True, metavar="NAME", help="May be repeated."),
    "queue": click.option("--queue", multiple=True, metavar="NAME", help="May be repeated."),
    "tenant": click.option("--tenant", metavar="NAME", help="Only this tenant's; all tenants unless given."),
    "tag": click.option("--tag", metavar="TAG", help="Jobs with this tag."),
    "text": click.option("--text", metavar="TEXT",
                         help="In the id, task, tags, arguments or error; capitals do not matter."),
    "correlation_id": click.option("--correlation-id", metavar="ID", help="Jobs of one story."),
    "parent_id": click.option("--parent", "parent_id", metavar="ID", help="Jobs enqueued from this one."),
    "reference": click.option("--reference", type=reference, metavar="KIND:ID", help="Such as user:42."),
    "metadata": click.option("--metadata", type=metadata, multiple=True, metavar="KEY=VALUE", help="May be repeated."),
    "created_after": click.option("--created-after", type=moment, metavar="WHEN", help=_WHEN),
    "created_before": click.option("--created-before", type=moment, metavar="WHEN", help=_WHEN),
}  # fmt: skip
"""By the names that ``app.jobs.list`` has for them."""

_ARCHIVED: dict[str, Option] = {
    name: option for name, option in _OPTIONS.items() if name not in ("tag", "text", "reference", "metadata")
} | {
    "status": click.option("--status", multiple=True, type=click.Choice(sorted(state.value for state in ENDED)),
                           metavar="STATUS", help="How the job ended, such as failed; may be repeated."),
}  # fmt: skip


class Where:
    """Which jobs are meant, as it was typed."""

    def __init__(self, typed: dict[str, Any]) -> None:
        self._typed = {name: value for name, value in typed.items() if value not in (None, ())}

    @property
    def narrows(self) -> bool:
        """Whether there is a condition beside the tenant."""
        return bool(set(self._typed) - {"tenant"})

    def of(self, desk: Desk) -> dict[str, Any]:
        """The conditions as ``app.jobs`` takes them; what is said as an age is counted from the store's now."""
        found = dict(self._typed)
        found.setdefault("tenant", ALL_TENANTS)
        for name in ("created_after", "created_before"):
            if isinstance(found.get(name), timedelta):
                found[name] = desk.now() - found[name]
        if "metadata" in found:
            found["metadata"] = dict(found["metadata"])
        return found


def filtered(command: Command) -> Command:
    """Give a command the filter options, gathered in its argument ``where``."""
    return _with(_OPTIONS, command)


def archive_filtered(command: Command) -> Command:
    """The same, of the conditions by which archived jobs are found."""
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
