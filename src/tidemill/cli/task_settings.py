"""``tidemill tasks set``: runtime settings of a task, which override the code."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import click

from tidemill.cli.context import CommandContext, at_desk
from tidemill.cli.limits import allowed
from tidemill.cli.parsers import duration
from tidemill.cli.screen import print_json, print_lines, span
from tidemill.client.control import TASK_SETTING, limit_of, setting_of
from tidemill.client.documents import seconds
from tidemill.client.limits import NO_LIMIT
from tidemill.domain.limits import Rule

KEYS = ("max_attempts", "timeout", "max_concurrent")
"""Names of the settings."""


@click.command("set")
@click.argument("name")
@click.option("--max-attempts", type=click.IntRange(1), metavar="N", help="Attempts in total.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Time limit of one attempt.")
@click.option(
    "--max-concurrent", type=click.IntRange(0), metavar="N", help="Jobs at the same time; 0 for no limit."
)
@click.option("--unset", "dropped", multiple=True, metavar="KEY", help="Remove an override; repeatable.")
@at_desk
def set_task(
    desk: CommandContext,
    name: str,
    max_attempts: int | None,
    timeout: timedelta | None,
    max_concurrent: int | None,
    dropped: tuple[str, ...],
) -> None:
    """Override options of a task, for all workers.

    The override holds until it is removed with --unset.
    """
    if desk.app:
        # Refuse a misspelt name.
        desk.registry.get(name)
    keys = {key.replace("-", "_") for key in dropped}
    if keys - set(KEYS):
        raise click.BadParameter(f"there is no {sorted(keys - set(KEYS))[0]}; there are {', '.join(KEYS)}")
    given = {
        key: value
        for key, value in (("max_attempts", max_attempts), ("timeout", seconds(timeout)))
        if value is not None
    }
    if keys & (given.keys() | ({"max_concurrent"} if max_concurrent is not None else set())):
        raise click.BadParameter("the same option cannot be set and unset at once")
    if not given and not keys and max_concurrent is None:
        raise click.BadParameter(
            "nothing to set; pass --max-attempts, --timeout, --max-concurrent, or --unset KEY"
        )
    before = task_setting(desk, name)
    after = {key: value for key, value in {**before, **given}.items() if key not in keys}
    if after != before:
        if after:
            desk.control.set(TASK_SETTING + name, after)
        else:
            desk.control.unset(TASK_SETTING + name)
    if max_concurrent is not None:
        desk.limits.set(f"task/{name}", max_concurrent)
    elif "max_concurrent" in keys:
        desk.limits.unset(f"task/{name}")
    _report(desk, name)


def _report(desk: CommandContext, name: str) -> None:
    said, rule = task_setting(desk, name), task_rule(desk, name)
    if desk.as_json:
        print_json({"name": name, "set": set_document(said, rule)})
        return
    words = set_words(said, rule)
    print_lines(
        [(f"task {name}: {words}" if words else f"task {name} is reset to the values in the code", "")]
    )


def task_setting(desk: CommandContext, name: str) -> Mapping[str, object]:
    """Return the runtime settings of a task, without its limit."""
    return setting_of(name, desk.control.settings())


def task_rule(desk: CommandContext, name: str) -> Rule | None:
    """Return the limit that an operator has set for a task."""
    return limit_of(name, desk.store.rules())


def set_document(said: Mapping[str, object], rule: Rule | None) -> dict[str, object]:
    """Return the settings as a document."""
    return {**said, **({} if rule is None else {"max_concurrent": rule.max})}


def set_words(said: Mapping[str, object], rule: Rule | None) -> str | None:
    """Describe the settings in words; None without any."""
    words = []
    if "max_attempts" in said:
        attempts = said["max_attempts"]
        words.append("1 attempt" if attempts == 1 else f"{attempts} attempts")
    if "timeout" in said:
        limit = said["timeout"]
        words.append(
            "no timeout" if limit is None else f"timeout {span(timedelta(seconds=float(str(limit))))}"
        )
    if rule is not None:
        words.append(f"{NO_LIMIT} of jobs at a time" if rule.max <= 0 else allowed(rule))
    return ", ".join(words) or None
