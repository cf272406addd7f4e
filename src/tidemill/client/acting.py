"""Who acts, and writing down what they did. Who may act is not judged here.

An act and its audit entry belong into one ``store.transaction()``: neither is ever there without the other.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import ParamSpec, TypeVar

from tidemill.domain.job import Enqueued, NewJob
from tidemill.domain.ledger import AuditEntry
from tidemill.errors import BadSettings
from tidemill.stores.base import Store
from tidemill.tasks.ambient import current_tenant, tenant_scope

P = ParamSpec("P")
R = TypeVar("R")
Facts = Mapping[str, object]

HIDDEN = "***"
"""Stands in the audit for what was there and is nobody's business."""

NAMED = 100
"""How many ids an entry about many things names."""

_who: ContextVar[str | None] = ContextVar("tidemill_who", default=None)


@contextmanager
def acting(who: str) -> Iterator[None]:
    """What is done in the block is done by this person or program, as the audit will say."""
    if not who or len(who) > 400 or not who.isprintable():
        raise BadSettings(f"{who!r} says nobody; give 1 to 400 printable characters")
    token = _who.set(who)
    try:
        yield
    finally:
        _who.reset(token)


def named() -> str | None:
    """Who the surrounding ``acting`` names; None outside of one."""
    return _who.get()


def who() -> str:
    """Who acts here: the one named, else the user of the operating system.

    >>> with acting("ann"):
    ...     who()
    'ann'
    """
    return _who.get() or f"python:{os_user()}"


def os_user() -> str:
    """The user of the operating system this program runs as."""
    for name in ("USER", "USERNAME", "LOGNAME"):
        if said := os.environ.get(name, "").strip():
            return said if said.isprintable() else "unknown"
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a number without a name, as containers have them
        return "unknown"


def carried(act: Callable[P, R]) -> Callable[P, R]:
    """The act for another thread, where it is done by whoever acts here, for the tenant that is meant here."""
    by, tenant = _who.get(), current_tenant()
    if by is None and tenant is None:
        return act

    def there(*args: P.args, **kwargs: P.kwargs) -> R:
        with ExitStack() as around:
            if by is not None:
                around.enter_context(acting(by))
            if tenant is not None:
                around.enter_context(tenant_scope(tenant))
            return act(*args, **kwargs)

    return there


def note(
    store: Store,
    action: str,
    subject: str,
    tenant: str,
    *,
    before: Facts | None = None,
    after: Facts | None = None,
    by: str | None = None,
    now: datetime | None = None,
) -> None:
    """Write down one act, in the transaction that is open."""
    store.record([AuditEntry(by or who(), action, subject, tenant, before, after)], now=now)


def difference(
    before: Facts | None, after: Facts | None, hidden: Sequence[str] = ()
) -> tuple[Facts | None, Facts | None]:
    """What an act changed, as it was and as it is: the same names with the old and the new values, and nothing else.

    >>> difference({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "c": 4}, hidden=["c"])
    ({'b': 2, 'c': '***'}, {'b': 5, 'c': '***'})
    """
    old, new = before or {}, after or {}
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]

    def side(facts: Facts | None) -> Facts | None:
        if facts is None:
            return None
        return {
            name: HIDDEN if name in hidden and facts.get(name) is not None else facts.get(name)
            for name in names
        }

    return side(before), side(after)


def plain(value: object) -> object:
    """A value that JSON knows, for one that a filter or a setting holds."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
        case set() | frozenset():
            return sorted(str(each) for each in value)
        case datetime():
            return value.isoformat()
        case _:
            return str(getattr(value, "name", value))


def enqueued_entries(jobs: Sequence[NewJob], written: Sequence[Enqueued], by: str) -> list[AuditEntry]:
    """What is written down of jobs whose call, or whose task, asks for that; nothing of those that were not created."""
    made = [job for job, answer in zip(jobs, written, strict=True) if answer.created]
    if not made:
        return []
    first = made[0]
    facts: dict[str, object] = {"task": first.task, "queue": first.queue, "priority": first.priority}
    if len(made) == 1:
        return [AuditEntry(by, "job.enqueued", f"job:{first.id}", first.tenant, None, facts)]
    facts |= {"done": len(made), "ids": [str(job.id) for job in made[:NAMED]]}
    return [AuditEntry(by, "jobs.enqueued", "jobs", first.tenant, None, facts)]
