"""Suggestions for names that a command does not know."""

from __future__ import annotations

import contextlib
import difflib
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from tidemill.cli import completion
from tidemill.errors import (
    DefinitionNotFound,
    LeaseNotFound,
    LimitNotFound,
    ScheduleNotFound,
    SubscriptionNotFound,
    UsageError,
    WorkerNotFound,
)

NAMES = {
    DefinitionNotFound: completion.definition_keys,
    LeaseNotFound: completion.lease_names,
    LimitNotFound: completion.limit_names,
    ScheduleNotFound: completion.schedule_keys,
    SubscriptionNotFound: completion.subscription_names,
    WorkerNotFound: completion.worker_names,
}
"""Completions with the names that exist, by the error of a name that does not exist."""


def meant(typed: str, names: Iterable[str]) -> str | None:
    """Return a question with the most similar name; None if no name is similar.

    >>> meant("ack", ["list", "acknowledge"])
    "did you mean 'acknowledge'?"
    """
    there = list(dict.fromkeys(names))
    close = _beginning_with(typed, there) or difflib.get_close_matches(typed, there, n=1)
    return f"did you mean {close[0]!r}?" if close else None


def _beginning_with(typed: str, names: list[str]) -> list[str]:
    """Return the only name that begins with these characters."""
    near = [name for name in names if name.startswith(typed)] if len(typed) > 1 else []
    return near if len(near) == 1 else []


@contextlib.contextmanager
def suggesting(context: Any) -> Iterator[None]:
    """Add a similar name that exists to an error about a name that does not exist."""
    try:
        yield
    except tuple(NAMES) as error:
        typed = error.details.get("key") or error.details.get("name") or error.details.get("id")
        find: Any = inspect.unwrap(NAMES[type(error)])
        question = meant(typed, find(context)) if isinstance(typed, str) else None
        if question is None:
            raise
        words = error.message.partition("; see ")[0]
        raise type(error)(f"{words}; {question}", **error.details) from None


def refuse_unknown_limit(context: Any, name: str, check: Callable[[], object]) -> None:
    """Raise an error for a new limit of a queue or task that nothing uses; ``check`` finds other errors first."""
    from tidemill.cli.known_names import check_known
    from tidemill.domain.records import PauseKind

    scope, _, rest = name.removeprefix("depth/").partition("/")
    if scope not in (PauseKind.QUEUE, PauseKind.TASK) or name in {
        rule.name for rule in context.limits.list()
    }:
        return
    check()
    check_known(context, PauseKind(scope), [rest], hint="pass --new to set the limit before its first job")


def refuse_similar_setting(key: str, names: Iterable[str]) -> None:
    """Raise an error for a setting whose key resembles one that Tidemill reads."""
    there = set(names)
    question = None if key in there else meant(key, there)
    if question is not None:
        raise UsageError(f"no setting is named {key!r}; {question} --new allows a new key", key=key)


class OneOf(click.Choice[str]):
    """A choice whose error names the value that was probably meant."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the choice, or fail with a suggestion."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            question = meant(str(value), map(str, self.choices))
            if question is None:
                raise
            self.fail(f"{error.message.rstrip('.')}; {question}", param, ctx)
