"""Limits declared by tasks: their rules, and the names a job counts against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.domain.bounds import LONGEST
from tidemill.domain.breaker import Breaker
from tidemill.domain.durations import Duration, set_durations
from tidemill.domain.limits import ENDLESS, LimitKind, Rule, key_part, key_text
from tidemill.errors import BadArguments, BadSettings

if TYPE_CHECKING:
    from tidemill.tasks.options import TaskOptions

Key = Callable[[Mapping[str, Any]], Any] | str


@dataclass(frozen=True, slots=True)
class Limit:
    """At most ``max`` jobs run at a time: of the task, or for each value of ``key``.

    ``key`` is the name of an argument, or a function of the arguments as plain data. Limits with the same ``name`` are
    one limit, even if several tasks declare it. With ``by_tenant``, each tenant is counted separately.

    >>> Limit(3, key="account").max
    3
    """

    max: int
    key: Key | None = None
    name: str | None = None
    by_tenant: bool = False

    def __post_init__(self) -> None:
        _check_max(self, self.max)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``max`` jobs start within any ``per``: of the task, or for each value of ``key``.

    With ``burst`` it is a token bucket instead: up to ``burst`` jobs may start at once, and the bucket refills at
    ``max`` per ``per``.

    >>> Rate(100, per="1s").per
    datetime.timedelta(seconds=1)
    """

    max: int
    per: timedelta
    key: Key | None = None
    burst: int | None = None
    name: str | None = None
    by_tenant: bool = False

    if TYPE_CHECKING:

        def __init__(
            self,
            max: int,  # noqa: A002  (the name that rules use)
            per: Duration,
            key: Key | None = None,
            burst: int | None = None,
            name: str | None = None,
            by_tenant: bool = False,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_max(self, self.max)
        set_durations(self, "Rate", per=self.per)
        check_rate("Rate", self.per, self.burst)


def _check_max(limit: object, most: object) -> None:
    if not _is_count(most):
        raise BadSettings(
            f"{type(limit).__name__}: max is {most!r}; give a whole number from 1 to {ENDLESS:,}"
        )


def check_rate(where: str, per: object, burst: object, **context: object) -> None:
    """Raise for a period or burst that is invalid or that not every store can hold."""
    if not isinstance(per, timedelta) or per <= timedelta(0):
        raise BadSettings(
            f"{where}: per is {per!r}; give a timedelta longer than zero", option="per", **context
        )
    if per > LONGEST:
        raise BadSettings(
            f"{where}: per is {per}; the longest duration is a hundred years", option="per", **context
        )
    if burst is not None and not _is_count(burst):
        raise BadSettings(
            f"{where}: burst is {burst!r}; give a whole number from 1 to {ENDLESS:,}",
            option="burst",
            **context,
        )


def _is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= ENDLESS


class Declares(Protocol):
    """The options of a task that limits use."""

    @property
    def name(self) -> str: ...
    @property
    def max_concurrent(self) -> int: ...
    @property
    def limits(self) -> tuple[Limit | Rate, ...]: ...
    @property
    def breaker(self) -> Breaker | None: ...


def read_limits(task: str, given: Iterable[Any]) -> tuple[Limit | Rate, ...]:
    """Validate the limits given to a decorator."""
    found = tuple(given)
    for limit in found:
        if not isinstance(limit, Limit | Rate):
            raise BadSettings(f"task {task}: {limit!r} is not a limit; give Limit(…) or Rate(…)")
        if limit.name is not None and (not limit.name or "/" in limit.name or not limit.name.isprintable()):
            raise BadSettings(f"task {task}: {limit.name!r} is not a limit's name; names have no '/'")
    names = [rule_name(task, limit, found) for limit in found]
    for name in names:
        if names.count(name) > 1:
            raise BadSettings(f"task {task}: two limits are called {name!r}; give one of them another name")
    return found


def read_breaker(task: str, given: Any) -> Breaker | None:
    """Read the breaker given to a decorator: the name of the dependency, or a ``Breaker``."""
    match given:
        case None | Breaker():
            return given
        case str():
            return Breaker(given)
        case _:
            raise BadSettings(f"task {task}: breaker is {given!r}; give a name or a Breaker(…)")


def rule_name(task: str, limit: Limit | Rate, among: tuple[Limit | Rate, ...]) -> str:
    """Return the name of a limit: its own, else one made of the task's name, the kind and the key.

    Several limits of the same kind are numbered.
    """
    if limit.name is not None:
        return limit.name
    plain = [other for other in among if other.name is None and _word(other) == _word(limit)]
    at = next(place for place, other in enumerate(plain) if other is limit)
    return f"{task.replace('/', ':')}.{_word(limit)}{at + 1 if at else ''}"


def _word(limit: Limit | Rate) -> str:
    kind = "rate" if isinstance(limit, Rate) else "limit"
    return f"{kind}.{limit.key}" if isinstance(limit.key, str) else kind


def rules_of(task: Declares) -> list[Rule]:
    """Return the rules that a task declares."""
    rules: list[Rule] = []
    if task.max_concurrent:
        rules.append(Rule(f"task/{task.name}", LimitKind.CONCURRENCY, task.max_concurrent))
    for limit in task.limits:
        name = rule_name(task.name, limit, task.limits)
        if isinstance(limit, Rate):
            rules.append(Rule(name, LimitKind.RATE, limit.max, limit.per, limit.burst))
        else:
            rules.append(Rule(name, LimitKind.CONCURRENCY, limit.max))
    if task.breaker is not None:
        name = f"breaker/{task.breaker.name}"
        rules.append(Rule(name, LimitKind.BREAKER, task.breaker.probes, breaker=task.breaker))
    return rules


def names_for(task: Declares, tenant: str, values: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the limits that a job with these arguments counts against, sorted."""
    names = {f"task/{task.name}"} if task.max_concurrent else set()
    for limit in task.limits:
        name = rule_name(task.name, limit, task.limits)
        parts = [tenant] if limit.by_tenant else []
        if limit.key is not None:
            parts.append(_key(task.name, limit.key, values()))
        names.add("/".join((name, *parts)))
    if task.breaker is not None:
        names.add(f"breaker/{task.breaker.name}")
    return tuple(sorted(names))


def _key(task: str, key: Key, values: Mapping[str, Any]) -> str:
    """Return a key's value as text."""
    try:
        found = values.get(key) if isinstance(key, str) else key(values)
    except Exception as error:
        raise BadArguments(
            f"task {task}: a limit's key cannot be made of these arguments: {error!r}", task=task
        ) from error
    return key_part(key, found) if isinstance(key, str) else key_text(found)


def limit_data(task: Declares) -> dict[str, object]:
    """Describe a task's limits as plain data for processes that do not import the task. Empty if there are none.

    Limits whose keys are computed by code are left out.
    """
    data: dict[str, object] = {}
    if task.max_concurrent:
        data["max_concurrent"] = task.max_concurrent
    told = [
        {"name": rule_name(task.name, limit, task.limits), "key": limit.key, "by_tenant": limit.by_tenant}
        for limit in task.limits
        if not callable(limit.key)
    ]
    if told:
        data["limits"] = told
    if task.breaker is not None:
        data["breaker"] = task.breaker.name
    return data


def called_names(task: Declares, tenant: str, values: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names of the limits whose keys are computed by code, for these arguments."""
    names = set()
    for limit in task.limits:
        if callable(limit.key):
            parts = [tenant] if limit.by_tenant else []
            name = rule_name(task.name, limit, task.limits)
            names.add("/".join((name, *parts, _key(task.name, limit.key, values()))))
    return tuple(sorted(names))


def rules_of_all(tasks: Iterable[TaskOptions]) -> list[Rule]:
    """Return the rules that several tasks declare. If two use the same name, the first one counts."""
    found: dict[str, Rule] = {}
    for task in tasks:
        for rule in rules_of(task):
            found.setdefault(rule.name, rule)
    return list(found.values())
