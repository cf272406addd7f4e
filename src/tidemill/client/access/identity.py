"""The acting identity, and audit records of actions.

Permissions are checked elsewhere. An action and its audit entry belong in one ``store.transaction()``, so that neither
is stored without the other.
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
from tidemill.domain.records import AuditEntry
from tidemill.errors import BadSettings
from tidemill.stores.base import Store
from tidemill.tasks.ambient import current_tenant, tenant_scope

P = ParamSpec("P")
R = TypeVar("R")
Facts = Mapping[str, object]

HIDDEN = "***"
"""Replaces confidential values in the audit."""

NAMED = 100
"""Maximum number of ids listed in an entry about many objects."""

_who: ContextVar[str | None] = ContextVar("tidemill_who", default=None)


@contextmanager
def acting(who: str) -> Iterator[None]:
    """Attribute all actions in the block to this person or program in the audit."""
    if not who or len(who) > 400 or not who.isprintable():
        raise BadSettings(f"{who!r} is not a valid actor; give 1 to 400 printable characters")
    token = _who.set(who)
    try:
        yield
    finally:
        _who.reset(token)


def named() -> str | None:
    """Return the identity of the enclosing ``acting`` block; None outside of one."""
    return _who.get()


def who() -> str:
    """Return the acting identity, by default the user of the operating system.

    >>> with acting("ann"):
    ...     who()
    'ann'
    """
    return _who.get() or f"python:{os_user()}"


def os_user() -> str:
    """Return the operating system user that runs this program."""
    for name in ("USER", "USERNAME", "LOGNAME"):
        if said := os.environ.get(name, "").strip():
            return said if said.isprintable() else "unknown"
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user id without a name, as in containers
        return "unknown"


def carried(act: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function for another thread, so that it runs there with the caller's identity and tenant."""
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
    """Add one audit record, in the open transaction."""
    store.record([AuditEntry(by or who(), action, subject, tenant, before, after)], now=now)


def difference(
    before: Facts | None, after: Facts | None, hidden: Sequence[str] = ()
) -> tuple[Facts | None, Facts | None]:
    """Return the changed values before and after an action: the same names with old and new values.

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
    """Convert a value of a filter or a setting to plain JSON data."""
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
    """Return the audit entries of enqueued jobs; jobs that were not created are left out."""
    made = [job for job, answer in zip(jobs, written, strict=True) if answer.created]
    if not made:
        return []
    first = made[0]
    facts: dict[str, object] = {"task": first.task, "queue": first.queue, "priority": first.priority}
    if len(made) == 1:
        return [AuditEntry(by, "job.enqueued", f"job:{first.id}", first.tenant, None, facts)]
    facts |= {"done": len(made), "ids": [str(job.id) for job in made[:NAMED]]}
    return [AuditEntry(by, "jobs.enqueued", "jobs", first.tenant, None, facts)]
