"""``tidemill tasks set``: runtime settings of a task, which override the code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

import click

from tidemill.cli.completion import task_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.limits import allowed
from tidemill.cli.parsers import duration
from tidemill.cli.screen import print_json, print_lines, span
from tidemill.client.control import TASK_OVERRIDES, limit_of, setting_of
from tidemill.client.documents import seconds
from tidemill.client.limits import NO_LIMIT
from tidemill.domain.limits import Rule


@click.command("set")
@click.argument("name", shell_complete=task_names)
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="Attempts in total.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Time limit of one attempt.")
@click.option(
    "--max-concurrent", type=click.IntRange(0), metavar="N", help="Jobs at the same time; 0 for no limit."
)
@click.option("--retry-delay", type=duration, metavar="DURATION", help="Wait before every further attempt.")
@click.option("--unset", "dropped", multiple=True, metavar="KEY", help="Remove an override; repeatable.")
@with_context
def set_task(
    context: CommandContext,
    name: str,
    max_attempts: int | None,
    timeout: timedelta | None,
    max_concurrent: int | None,
    retry_delay: timedelta | None,
    dropped: tuple[str, ...],
) -> None:
    """Override options of a task, for all workers.

    The override holds until it is removed with --unset.
    """
    if context.app:
        # Refuse a misspelt name.
        context.registry.get(name)
    values = {
        "max_attempts": max_attempts,
        "timeout": seconds(timeout),
        "max_concurrent": max_concurrent,
        "retry_delay": seconds(retry_delay),
    }
    given = {key: value for key, value in values.items() if value is not None}
    unset = _unset_keys(dropped, given)
    context.control.set_task(name, given, unset)
    _report(context, name)


def _unset_keys(dropped: Iterable[str], given: Mapping[str, object]) -> set[str]:
    """Return the settings to remove; refuse an unknown one, one that is also given, and a call without effect."""
    keys = {key.replace("-", "_") for key in dropped}
    if keys - set(TASK_OVERRIDES):
        raise click.BadParameter(
            f"there is no {sorted(keys - set(TASK_OVERRIDES))[0]}; there are {', '.join(TASK_OVERRIDES)}"
        )
    if keys & given.keys():
        raise click.BadParameter("the same option cannot be set and unset at once")
    if not given and not keys:
        raise click.BadParameter(
            "nothing to set; pass --max-attempts, --timeout, --max-concurrent, --retry-delay, or --unset KEY"
        )
    return keys


def _report(context: CommandContext, name: str) -> None:
    setting, rule = task_setting(context, name), task_rule(context, name)
    if context.as_json:
        print_json({"name": name, "set": set_document(setting, rule)})
        return
    words = set_words(setting, rule)
    print_lines(
        [(f"task {name}: {words}" if words else f"task {name} is reset to the values in the code", "")]
    )


def task_setting(context: CommandContext, name: str) -> Mapping[str, object]:
    """Return the runtime settings of a task, without its limit."""
    return setting_of(name, context.control.settings())


def task_rule(context: CommandContext, name: str) -> Rule | None:
    """Return the limit that an operator has set for a task."""
    return limit_of(name, context.store.rules())


def set_document(setting: Mapping[str, object], rule: Rule | None) -> dict[str, object]:
    """Return the settings as a document."""
    return {**setting, **({} if rule is None else {"max_concurrent": rule.max})}


def set_words(setting: Mapping[str, object], rule: Rule | None) -> str | None:
    """Describe the settings in words; None without any."""
    words = []
    if "max_attempts" in setting:
        attempts = setting["max_attempts"]
        words.append("1 attempt" if attempts == 1 else f"{attempts} attempts")
    if "timeout" in setting:
        limit = setting["timeout"]
        words.append(
            "no timeout" if limit is None else f"timeout {span(timedelta(seconds=float(str(limit))))}"
        )
    if "retry_delay" in setting:
        words.append(f"{span(timedelta(seconds=float(str(setting['retry_delay']))))} between attempts")
    if rule is not None:
        words.append(f"{NO_LIMIT} of jobs at a time" if rule.max <= 0 else allowed(rule))
    return ", ".join(words) or None
