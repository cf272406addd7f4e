"""``tidemill limits``: list, set and reset limits and rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import click

from tidemill.cli.completion import limit_names
from tidemill.cli.context import CommandContext, with_context
from tidemill.cli.groups import InOrder
from tidemill.cli.parsers import duration
from tidemill.cli.screen import (
    Column,
    age,
    heading,
    percent,
    print_fields,
    print_json,
    print_lines,
    print_table,
    span,
    thousands,
)
from tidemill.cli.suggestions import refuse_unknown_limit
from tidemill.client.documents import limit_document
from tidemill.client.limits import LimitState, allows
from tidemill.domain.limits import LimitKind, Rule
from tidemill.tasks.limit_rules import rule_for

USES = (Column("limit", flexible=True), Column("used", right=True), Column("says", flexible=True))
"""Columns of the short table."""


def use_rows(limits: Sequence[LimitState], now: datetime) -> list[list[object]]:
    """Return limits as rows of the short table, full ones first."""
    ordered = sorted(limits, key=lambda limit: (not limit.is_full, limit.name))
    return [[limit.name, used(limit), _says(limit, now)] for limit in ordered]


def used(limit: LimitState) -> str:
    """Format the usage of a limit."""
    if limit.rule.kind is LimitKind.BREAKER or limit.rule.max <= 0:
        return thousands(limit.used)
    if limit.keys:
        top = limit.keys[0]
        return f"{thousands(top.used)}/{thousands(limit.rule.max)}"
    return f"{thousands(limit.used)}/{thousands(limit.rule.max)}"


def _says(limit: LimitState, now: datetime) -> str | None:
    words = []
    if limit.phase is not None:
        words.append(str(limit.phase).replace("_", " "))
    if limit.room == 0 and limit.phase is None:
        words.append("full")
    if limit.opens_at is not None:
        words.append(f"room {age(limit.opens_at, now)}")
    if limit.keys:
        full = sum(key.room == 0 for key in limit.keys)
        words.append(f"most by {limit.keys[0].name}" + (f", {full} full" if full else ""))
    return ", ".join(words) or None


@click.group(cls=InOrder)
def limits() -> None:
    """List, set and reset limits and rates."""


@limits.command("list")
@with_context
def list_limits(context: CommandContext) -> None:
    """List limits with their use."""
    limits = context.limits.list()
    now = context.now()
    if context.as_json:
        print_json([limit_document(limit) for limit in limits])
        return
    columns = (
        Column("limit", flexible=True), Column("allows", flexible=True), Column("used", right=True),
        Column("says", flexible=True), Column("set", flexible=True, optional=True),
    )  # fmt: skip
    rows = [
        [limit.name, allowed(limit.rule), used(limit), _says(limit, now), _set(limit.rule, now)]
        for limit in limits
    ]
    print_table(columns, rows, empty="no limits: tasks declare them, and tidemill limits set sets them")


@limits.command()
@click.argument("name", shell_complete=limit_names)
@with_context
def show(context: CommandContext, name: str) -> None:
    """Show a limit, or one key of it."""
    limit = context.limits.get(name)
    if context.as_json:
        print_json(limit_document(limit))
        return
    now = context.now()
    print_fields(_fields(context, limit, now))
    if limit.keys:
        heading("Keys")
        print_table(USES, use_rows(limit.keys, now), empty="")


def _fields(context: CommandContext, limit: LimitState, now: datetime) -> Iterator[tuple[str, object]]:
    code = context.limits.declared().get(limit.rule.name)
    yield "limit", limit.name
    if limit.name != limit.rule.name:
        yield "by the rule", limit.rule.name
    yield "allows", allowed(limit.rule)
    yield "the code says", None if code is None else allowed(code)
    yield "used", thousands(limit.used)
    yield "room", None if limit.room is None else thousands(limit.room)
    yield "breaker", None if limit.phase is None else str(limit.phase).replace("_", " ")
    yield "opens", None if limit.opens_at is None else age(limit.opens_at, now)
    yield "set", _set(limit.rule, now)


@limits.command("set")
@click.argument("name", shell_complete=limit_names)
@click.argument("most", metavar="MAX", type=int)
@click.option("--per", type=duration, metavar="DURATION", help="Make it a rate: MAX starts within this time.")
@click.option("--burst", type=int, metavar="N", help="Burst size of the rate (token bucket).")
@click.option("--new", is_flag=True, help="Allow a queue or task that is not known yet.")
@with_context
def set_limit(
    context: CommandContext, name: str, most: int, per: timedelta | None, burst: int | None, new: bool
) -> None:
    """Allow at most MAX jobs at the same time, or within --per.

    0 removes the limit. The value overrides the code and takes effect within five seconds.
    """
    if not new:
        refuse_unknown_limit(context, name, lambda: rule_for(name, most, per=per, burst=burst))
    limit = context.limits.set(name, most, per=per, burst=burst)
    if context.as_json:
        print_json(limit_document(limit))
        return
    words = "is lifted" if limit.rule.max <= 0 else f"allows {allowed(limit.rule)}"
    print_lines([(f"limit {name} {words}; running jobs continue", "")])


@limits.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=limit_names)
@with_context
def unset(context: CommandContext, names: tuple[str, ...]) -> None:
    """Remove overrides: the limits of the code apply again."""
    dropped = {name: context.limits.unset(name) for name in dict.fromkeys(names)}
    if context.as_json:
        print_json([name for name, was in dropped.items() if was])
        return
    for name, was in dropped.items():
        print_lines([(f"limit {name} {'is reset to the value in the code' if was else 'was not set'}", "")])


@limits.command("reset-breaker")
@click.argument("name", shell_complete=limit_names)
@with_context
def reset_breaker(context: CommandContext, name: str) -> None:
    """Close a circuit breaker so that its jobs run again."""
    limit = context.limits.reset_breaker(name)
    if context.as_json:
        print_json(limit_document(limit))
        return
    print_lines([(f"{limit.name} is {limit.phase}", "")])


def allowed(rule: Rule) -> str:
    """Describe a rule in a few words."""
    return allows(rule, span, percent)


def _set(rule: Rule, now: datetime) -> str | None:
    if not rule.pinned:
        return None
    by = f" by {rule.changed_by}" if rule.changed_by else ""
    return f"set{by} {age(rule.changed_at, now)}"
