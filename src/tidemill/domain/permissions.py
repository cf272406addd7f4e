"""Acts, what each of them needs, and the one decision about them.

An identity may do an act if every rule allows it: the environment, the role, the tenant and, for an identity with grants, at
least one grant. An act that is not in ``ACTS`` is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.roles import Role
from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from tidemill.domain.access import Identity

PROTECTED = frozenset({"production"})
"""Environments in which some acts need a second, higher role."""

ANY = ("*",)


@dataclass(frozen=True, slots=True)
class Act:
    """The requirements of an act."""

    words: str
    role: Role  #: the least role
    everywhere: bool = False  #: it concerns all tenants, so an identity of one tenant is refused
    second: Role | None = None  #: the role that it needs in a protected environment as well
    ungranted: bool = False  #: it reveals no object, so grants do not restrict it


_VIEWER, _OPERATOR, _ADMIN, _SUPER = Role

ACTS: Mapping[str, Act] = {
    "access.read": Act("see your own permissions", _VIEWER, ungranted=True),
    "jobs.read": Act("see jobs", _VIEWER),
    "jobs.arguments": Act("see arguments, results, metadata and error messages of jobs", _VIEWER),
    "jobs.logs": Act("read the log lines of a job", _VIEWER),
    "jobs.payload": Act("download arguments, results and steps of jobs", _OPERATOR),
    "jobs.run": Act("enqueue jobs", _OPERATOR),
    "jobs.cancel": Act("cancel jobs", _OPERATOR),
    "jobs.retry": Act("retry jobs, or run them now", _OPERATOR),
    "jobs.change": Act("change the queue, priority or time of jobs", _OPERATOR),
    "jobs.review": Act("approve, reject and answer jobs", _OPERATOR),
    "jobs.signal": Act("send signals to jobs", _OPERATOR),
    "jobs.work": Act("run jobs through a hub", _ADMIN),
    "jobs.delete": Act("delete ended jobs", _ADMIN, second=_SUPER),
    "jobs.restore": Act("restore an archived job", _ADMIN),
    "jobs.erase": Act("erase a job everywhere", _ADMIN, second=_SUPER),
    "live.read": Act("receive hints that something has changed", _VIEWER, ungranted=True),
    "events.read": Act("read the stream of changes and emitted events", _VIEWER),
    "events.emit": Act("emit events", _OPERATOR),
    "questions.read": Act("see what jobs ask of people", _VIEWER),
    "flows.read": Act("see flows and batches", _VIEWER),
    "flows.run": Act("start flows", _OPERATOR),
    "flows.change": Act("retry, skip and cancel nodes of flows and batches", _OPERATOR),
    "tasks.read": Act("see tasks", _VIEWER),
    "tasks.pause": Act("pause and resume tasks", _OPERATOR, everywhere=True),
    "tasks.change": Act("change tasks", _ADMIN, everywhere=True),
    "tasks.configure": Act("change the stored settings of tasks", _SUPER, everywhere=True),
    "definitions.read": Act("see definitions", _VIEWER),
    "definitions.run": Act("start the job of a definition", _OPERATOR),
    "definitions.change": Act("create and change definitions", _ADMIN),
    "definitions.delete": Act("delete definitions", _ADMIN, second=_SUPER),
    "schedules.read": Act("see schedules", _VIEWER),
    "schedules.run": Act("fire a schedule now", _OPERATOR),
    "schedules.pause": Act("pause and resume schedules", _OPERATOR),
    "schedules.change": Act("create and change schedules", _ADMIN),
    "schedules.delete": Act("delete schedules", _ADMIN, second=_SUPER),
    "queues.read": Act("see queues", _VIEWER),
    "queues.pause": Act("pause and resume queues", _OPERATOR, everywhere=True),
    "pauses.read": Act("see what is paused", _VIEWER, everywhere=True),
    "pauses.change": Act("pause and resume tenants and other things by kind", _OPERATOR, everywhere=True),
    "pauses.all": Act("pause and resume all queues", _ADMIN, everywhere=True),
    "limits.reset": Act("reset circuit breakers", _OPERATOR, everywhere=True),
    "limits.read": Act("see limits and their use", _VIEWER, everywhere=True),
    "limits.change": Act("change limits", _ADMIN, everywhere=True),
    "tenants.read": Act("see figures by tenant", _VIEWER),
    "tenants.change": Act("change the share of a tenant", _SUPER, everywhere=True),
    "workers.read": Act("see workers, leases and stores", _VIEWER, everywhere=True),
    "workers.drain": Act("drain workers and release leases", _ADMIN, everywhere=True),
    "workers.pause": Act("pause and resume single workers", _OPERATOR, everywhere=True),
    "workers.scale": Act("change the number of processes and slots of workers", _ADMIN, everywhere=True),
    "workers.enable": Act("enable or disable all workers", _SUPER, everywhere=True),
    "duties.run": Act("run the duties of a worker once", _ADMIN, everywhere=True),
    "config.read": Act("see the configuration of workers", _SUPER, everywhere=True),
    "config.change": Act("change the configuration of workers", _SUPER, everywhere=True),
    "installation.read": Act("see the version and the state of the installation", _VIEWER, ungranted=True),
    "logs.read": Act("search the log lines of all jobs", _VIEWER),
    "stats.read": Act("see statistics and error groups", _VIEWER),
    "errors.change": Act("mute and resolve errors", _OPERATOR),
    "errors.retry": Act("retry all jobs with one error", _OPERATOR),
    "metrics.read": Act("see figures and alerts of the whole installation", _VIEWER, everywhere=True),
    "alerts.acknowledge": Act("acknowledge alerts", _OPERATOR, everywhere=True),
    "notifications.read": Act("see who was notified of what, and the channels", _OPERATOR, everywhere=True),
    "notifications.send": Act("send a notification", _ADMIN, everywhere=True),
    "subscriptions.remove": Act("remove subscriptions to events", _ADMIN, everywhere=True),
    "archive.read": Act("see archived jobs", _VIEWER),
    "archive.status": Act("see the state of the archive", _VIEWER, everywhere=True),
    "archive.restore": Act("restore archived jobs", _ADMIN),
    "archive.purge": Act(
        "run the archive, which removes jobs from the live tables", _ADMIN, everywhere=True, second=_SUPER
    ),
    "archive.erase": Act("erase jobs from the archive", _ADMIN, second=_SUPER),
    "audit.read": Act("read the audit log", _ADMIN),
    "audit.verify": Act("verify the audit log", _ADMIN, everywhere=True),
    "keys.read": Act("list API keys, and explain their permissions", _SUPER),
    "keys.change": Act("create and revoke API keys", _SUPER),
    "sessions.read": Act("list sign-in sessions", _SUPER, everywhere=True),
    "sessions.end": Act("end sign-in sessions", _SUPER, everywhere=True),
}
"""Every act. This table is the one place that says what an act needs."""


class ActTarget(NamedTuple):
    """The object of an act, as far as it is known."""

    task: str | None = None
    queue: str | None = None
    definition: str | None = None  #: the key of a definition or of a schedule

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self._asdict().items() if value) or "everything"


NOTHING = ActTarget()


class Grant(NamedTuple):
    """Acts that an identity may do, on the objects that match every pattern.

    In a pattern ``*`` stands for any text: ``report.*``. ``but`` removes acts. A grant never exceeds the role.

    >>> grant = Grant.parse("jobs.*,-jobs.arguments task=report.*")
    >>> grant.covers("jobs.run", ActTarget("report.daily", "default"))
    True
    >>> grant.covers("jobs.run", ActTarget("mail.send", "default")), grant.names("jobs.arguments")
    (False, False)
    """

    acts: tuple[str, ...] = ANY
    but: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ANY
    queues: tuple[str, ...] = ANY
    definitions: tuple[str, ...] = ANY

    @classmethod
    def parse(cls, text: str) -> Grant:
        """Return the grant of a text: ``ACT,-ACT… [task=PATTERN,…] [queue=PATTERN,…] [definition=PATTERN,…]``."""
        words = text.split()
        if not words:
            raise BadSettings("a grant is empty; give acts, such as 'jobs.read,jobs.run task=report.*'")
        acts = [act for act in words[0].split(",") if act]
        but = tuple(act[1:] for act in acts if act.startswith("-"))
        given: dict[str, tuple[str, ...]] = {}
        for word in words[1:]:
            name, _, patterns = word.partition("=")
            if name not in _FIELDS or not patterns:
                raise BadSettings(
                    f"{word!r} in the grant {text!r} is not valid; give task=, queue= or definition= with a pattern"
                )
            given[_FIELDS[name]] = tuple(filter(None, patterns.split(",")))
        grant = cls(tuple(act for act in acts if not act.startswith("-")) or ANY, but, **given)
        grant.check()
        return grant

    def check(self) -> None:
        """Refuse a pattern that matches no act, because it is a misspelling, and an empty list of patterns."""
        for pattern in (*self.acts, *self.but):
            if not any(_fits(pattern, act) for act in ACTS):
                raise BadSettings(f"no act matches {pattern!r}; see tidemill access acts", option="grants")
        for name in ("acts", "tasks", "queues", "definitions"):
            patterns: object = getattr(self, name)
            if not patterns or not isinstance(patterns, tuple) or not all(map(_is_pattern, patterns)):
                raise BadSettings(
                    f"{name} of a grant is {patterns!r}; give a tuple of patterns", option="grants"
                )

    def __str__(self) -> str:
        parts = [",".join((*self.acts, *(f"-{act}" for act in self.but)))]
        for name, field in _FIELDS.items():
            patterns: tuple[str, ...] = getattr(self, field)
            if patterns != ANY:
                parts.append(f"{name}={','.join(patterns)}")
        return " ".join(parts)

    def names(self, act: str) -> bool:
        """Whether the grant is about this act, on any object. Without arguments, a grant has no downloads of them either."""
        if not _matches(self.acts, act):
            return False
        return not self.but or not any(_matches(self.but, part) for part in (act, *_REVEALS.get(act, ())))

    def covers(self, act: str, target: ActTarget) -> bool:
        """Whether the grant allows this act on this object. An unknown property matches no pattern but ``*``."""
        return (
            self.names(act)
            and _matches(self.tasks, target.task)
            and _matches(self.queues, target.queue)
            and _matches(self.definitions, target.definition)
        )


_REVEALS = {"jobs.payload": ("jobs.arguments",), "jobs.work": ("jobs.arguments",)}
"""Acts that reveal what another act reveals."""

_FIELDS = {"task": "tasks", "queue": "queues", "definition": "definitions"}


def _is_pattern(pattern: object) -> bool:
    return isinstance(pattern, str) and re.fullmatch(r"[^\s,]{1,200}", pattern) is not None


def _matches(patterns: tuple[str, ...], value: str | None) -> bool:
    if patterns == ANY:
        return True
    return value is not None and any(_fits(pattern, value) for pattern in patterns)


@lru_cache(maxsize=1_000)
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _fits(pattern: str, value: str) -> bool:
    """Whether a text fits a pattern, in which ``*`` stands for any text."""
    return _expression(pattern).fullmatch(value) is not None


def read_grants(grants: Iterable[Grant | str]) -> tuple[Grant, ...]:
    """Return validated grants, given as objects or as text."""
    if isinstance(grants, str | Grant):
        raise BadSettings("grants is one grant; give a list of them", option="grants")
    read = tuple(Grant.parse(grant) if isinstance(grant, str) else grant for grant in grants)
    for grant in read:
        grant.check()
    return read


class AccessVerdict(NamedTuple):
    """Whether an act is allowed, and why in words. ``code`` is that of the refusal."""

    allowed: bool
    reason: str
    code: str = "forbidden"


def decide(
    identity: Identity, act: str, target: ActTarget | None = None, environment: str | None = None
) -> AccessVerdict:
    """Decide about an act. Without a target the decision is about the act on some object."""
    rule = ACTS.get(act)
    if rule is None:
        return AccessVerdict(False, f"there is no act {act!r}, so it is refused; see tidemill access acts")
    return (
        _by_environment(identity, environment)
        or _by_role(identity, act, rule, environment)
        or _by_grants(identity, act, rule, target)
    )


def _by_environment(identity: Identity, environment: str | None) -> AccessVerdict | None:
    if identity.environment is None or environment is None or identity.environment == environment:
        return None
    return AccessVerdict(
        False,
        f"this identity is for the environment {identity.environment}, and this is {environment}",
        "wrong_environment",
    )


def _by_role(identity: Identity, act: str, rule: Act, environment: str | None) -> AccessVerdict | None:
    if not identity.role.allows(rule.role):
        return AccessVerdict(
            False, f"this requires the role {rule.role.value}; yours is {identity.role.value}"
        )
    if rule.everywhere and identity.tenant != ALL_TENANTS:
        return AccessVerdict(False, "this requires a key of all tenants; your key is for one", "wrong_tenant")
    if rule.second is not None and environment in PROTECTED and not identity.role.allows(rule.second):
        return AccessVerdict(
            False,
            f"in the environment {environment}, {act} also requires the role {rule.second.value}; yours is {identity.role.value}",
            "second_role",
        )
    return None


def _by_grants(identity: Identity, act: str, rule: Act, target: ActTarget | None) -> AccessVerdict:
    whose = f"the role {identity.role.value}"
    if not identity.grants or rule.ungranted:
        return AccessVerdict(True, f"{whose} includes {act}: {rule.words}", "")
    naming = [grant for grant in identity.grants if grant.names(act)]
    if not naming:
        every = "; ".join(map(str, identity.grants))
        return AccessVerdict(
            False, f"no grant of this identity includes {act}; its grants: {every}", "not_granted"
        )
    if target is None:
        return AccessVerdict(True, f"{whose} and the grant {naming[0]} include {act}", "")
    for grant in naming:
        if grant.covers(act, target):
            return AccessVerdict(True, f"{whose} and the grant {grant} include {act} on {target}", "")
    limits = "; ".join(map(str, naming))
    return AccessVerdict(
        False, f"no grant includes {act} on {target}; grants with {act}: {limits}", "not_granted"
    )


class Access(NamedTuple):
    """Permissions beyond one role and one tenant, as a key or a session stores them."""

    grants: tuple[Grant, ...] = ()
    roles: tuple[tuple[str, Role], ...] = ()  #: the role in each tenant, instead of one role
    environment: str | None = None

    def data(self) -> dict[str, Any]:
        """Return JSON data without empty parts."""
        parts = {
            "grants": [str(grant) for grant in self.grants],
            "roles": {tenant: role.value for tenant, role in self.roles},
            "environment": self.environment,
        }
        return {name: value for name, value in parts.items() if value}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Access:
        """Return the permissions of stored JSON data."""
        return cls(
            tuple(Grant.parse(grant) for grant in data.get("grants", ())),
            tuple((tenant, Role(role)) for tenant, role in data.get("roles", {}).items()),
            data.get("environment"),
        )


NO_ACCESS = Access()
