"""Limits by name, as app settings and operators specify them.

This module does not access the store. The caller must check whether a task declares a name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from tidemill.domain.bounds import check_name
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.limits import ENDLESS, LimitKind, Rule
from tidemill.errors import BadSettings
from tidemill.tasks.limits import Limit, Rate, check_rate

PER_NAME = ("queue", "tenant", "depth/queue", "depth/tenant")
"""Names that apply to each queue or tenant separately."""

_NAMED = ("task", "definition")
_FORMS = "queue/NAME, tenant/NAME, task/NAME, definition/ID, depth/queue/NAME, depth/tenant/NAME"

LONGEST_NAME = 500
"""Longest name of a limit in characters, including its key."""


def scope_of(name: object) -> str | None:
    """Return the scope that a name limits, or None for a name that a task declares. Raises for invalid names."""
    if (
        not isinstance(name, str)
        or not name
        or len(name) > LONGEST_NAME
        or not name.isprintable()
        or name.strip() != name
        or name.startswith("/")
    ):
        raise BadSettings(f"{name!r} is not a limit's name; give one such as {_FORMS}", name=name)
    if name in PER_NAME:
        return name
    head, slash, rest = name.partition("/")
    if head == "breaker":
        raise BadSettings(
            f"{name}: a breaker is declared by its tasks; reset it with reset_breaker({rest or 'NAME'!r})",
            name=name,
        )
    if head == "depth":
        kind, _, rest = rest.partition("/")
        if kind not in ("queue", "tenant"):
            raise BadSettings(
                f"{name}: a depth limit belongs to a queue or a tenant; write depth/queue/NAME", name=name
            )
        head = f"depth/{kind}"
        _check_part(name, kind, rest)
    elif head in PER_NAME or head in _NAMED:
        if not slash:
            raise BadSettings(f"{name}: say which {head} is meant; write {head}/NAME", name=name)
        _check_part(name, head, rest)
    else:
        return None
    return head


def _check_part(name: str, kind: str, rest: str) -> None:
    try:
        if kind == "definition":
            UUID(rest)
        else:
            check_name(kind, rest)
    except (ValueError, BadSettings):
        wanted = "the definition's id" if kind == "definition" else f"the {kind}'s name"
        raise BadSettings(f"{name}: {rest!r} is not {wanted}; write {kind}/…", name=name) from None


def check_known(name: str, names: Collection[str]) -> None:
    """Raise for a name that is neither built in nor the name of a rule."""
    base = name.partition("/")[0]
    if scope_of(name) is None and name not in names and base not in names:
        raise BadSettings(
            f"there is no limit {base!r}: no task declares it, and it is not set; there are {_FORMS}, "
            "and the names of tidemill limits list",
            name=name,
        )


def rule_for(
    name: str,
    most: Any,
    *,
    per: Duration | None = None,
    burst: Any = None,
    before: Rule | None = None,
    pinned: bool = False,
) -> Rule:
    """Build a rule from these values. Omitted parts of a rate are taken from ``before``."""
    scope = scope_of(name)
    if not isinstance(most, int) or isinstance(most, bool) or not 0 <= most <= ENDLESS:
        raise BadSettings(
            f"limit {name}: max is {most!r}; give a whole number, 0 for no limit", name=name, option="max"
        )
    if scope is not None and scope.startswith("depth/"):
        if per is not None or burst is not None:
            raise BadSettings(f"limit {name}: a depth has no per and no burst", name=name)
        return Rule(name, LimitKind.DEPTH, most, pinned=pinned)
    if per is None and before is not None and before.kind is LimitKind.RATE:
        per, burst = before.per, before.burst if burst is None else burst
    if per is None:
        if burst is not None:
            raise BadSettings(f"limit {name}: a burst needs a rate; give per too", name=name, option="burst")
        return Rule(name, LimitKind.CONCURRENCY, most, pinned=pinned)
    span = read_duration(f"limit {name}: per", per, name=name, option="per")
    check_rate(f"limit {name}", span, burst, name=name)
    return Rule(name, LimitKind.RATE, most, span, burst, pinned=pinned)


def read_app_limits(given: object) -> dict[str, Rule]:
    """Read an app's ``limits`` setting: names with a number, a ``Limit`` or a ``Rate``."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadSettings(
            f"limits is {given!r}; give a dictionary such as {{'queue/mail': 5}}", setting="limits"
        )
    rules: dict[str, Rule] = {}
    for name, value in given.items():
        if isinstance(value, Limit | Rate) and (value.key is not None or value.name or value.by_tenant):
            raise BadSettings(
                f"limit {name}: a limit by name has no key, name or by_tenant of its own", name=name
            )
        match value:
            case Rate():
                rules[name] = rule_for(name, value.max, per=value.per, burst=value.burst)
            case Limit():
                rules[name] = rule_for(name, value.max)
            case _:
                rules[name] = rule_for(name, value)
    return rules
