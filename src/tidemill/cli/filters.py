"""The options that say which jobs are meant: one for each condition of ``app.jobs.list``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click

from tidemill.cli.desk import Desk
from tidemill.cli.reading import metadata, moment, reference
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState

_OPTIONS = (
    click.option("--status", multiple=True, type=click.Choice([state.value for state in JobState]),
                 metavar="STATUS", help="One of the states, such as pending or failed; may be repeated."),
    click.option("--task", multiple=True, metavar="NAME", help="May be repeated."),
    click.option("--queue", multiple=True, metavar="NAME", help="May be repeated."),
    click.option("--tenant", metavar="NAME", help="Only this tenant's; all tenants unless given."),
    click.option("--tag", metavar="TAG", help="Jobs with this tag."),
    click.option("--text", metavar="TEXT", help="In the id, task, tags, arguments or error; capitals do not matter."),
    click.option("--correlation-id", metavar="ID", help="Jobs of one story."),
    click.option("--parent", "parent_id", metavar="ID", help="Jobs enqueued from this one."),
    click.option("--reference", type=reference, metavar="KIND:ID", help="Such as user:42."),
    click.option("--metadata", type=metadata, multiple=True, metavar="KEY=VALUE", help="May be repeated."),
    click.option("--created-after", type=moment, metavar="WHEN", help="An ISO instant, or 2h for two hours ago."),
    click.option("--created-before", type=moment, metavar="WHEN", help="An ISO instant, or 2h for two hours ago."),
)  # fmt: skip

NAMES = (
    "status", "task", "queue", "tenant", "tag", "text", "correlation_id", "parent_id", "reference", "metadata",
    "created_after", "created_before",
)  # fmt: skip


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


def filtered(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the filter options, gathered in its argument ``where``."""

    @functools.wraps(command)
    def called(*args: Any, **kwargs: Any) -> None:
        where = Where({name: kwargs.pop(name) for name in NAMES})
        command(*args, where=where, **kwargs)

    decorated: Callable[..., None] = called
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
