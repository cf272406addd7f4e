"""A schedule: its handle, the validation of its rules and options, and its audit entries.

Everything is checked before anything is written. This module does not access a store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

from tidemill.client.access import AuditData, difference
from tidemill.client.enqueue.options import read_call
from tidemill.client.enqueue.writes import key_taken
from tidemill.domain.bounds import check_name, data_flaw
from tidemill.domain.calendar import BusinessCalendar, as_exclude
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.job import NewJob
from tidemill.domain.job_requests import OPTIONS, REFUSED, TaskData, options_to_data
from tidemill.domain.outgoing_addresses import read_url
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.record import Record
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.schedule_fires import NODE_QUEUE, FireRules, merged_args, read_rules, refuses
from tidemill.domain.schedule_rules import (
    Cron,
    Misfire,
    Overlap,
    check_misfire,
    check_overlap,
    first_fire,
    misfire_to_data,
)
from tidemill.domain.schedules import Definition, ScheduleRow, Scope, Source
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.every import Manual
from tidemill.domain.triggers.reactive import On, ReactiveTrigger
from tidemill.domain.zones import zone_of
from tidemill.errors import (
    BadArguments,
    BadSchedule,
    BadSettings,
    DefinitionBusy,
    DefinitionDisabled,
    SchedulePaused,
    TidemillError,
)
from tidemill.tasks.limits import called_names
from tidemill.tasks.secret_values import seal_arguments, seal_parameters
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client

HEARTBEAT = "heartbeat"
"""The option of a schedule with the address of a monitor, which is pinged when its jobs start, succeed and fail."""

OWN = ("defaults", "app", "limits")
"""Internal entries in a schedule's options that are not options of its jobs."""

P = ParamSpec("P")
R = TypeVar("R")


class Schedule:
    """A schedule as it was last read from the store."""

    def __init__(self, row: ScheduleRow) -> None:
        self.row = row
        self._rules: FireRules | None = None
        self.broken: str | None = (
            None  #: why this process cannot read the schedule, which therefore does not fire
        )
        try:
            self._rules = read_rules(row)
        except TidemillError as error:
            self.broken = str(error)

    @property
    def id(self) -> UUID:
        return self.row.id

    @property
    def key(self) -> str:
        return self.row.key

    @property
    def task(self) -> str:
        return self.row.task

    @property
    def tenant(self) -> str:
        return self.row.tenant

    @property
    def trigger(self) -> Any:
        """The trigger; the stored data if this process cannot read it."""
        return self.row.trigger if self._rules is None else self._rules.trigger

    @property
    def words(self) -> str:
        """The trigger as a text."""
        return "cannot be read here" if self._rules is None else self._rules.trigger.explain()

    @property
    def timezone(self) -> str:
        return self.row.timezone

    @property
    def calendar(self) -> Any:
        return None if self._rules is None else self._rules.calendar

    @property
    def exclude(self) -> Any:
        return None if self._rules is None else self._rules.exclude

    @property
    def misfire(self) -> Any:
        return self.row.misfire if self._rules is None else self._rules.misfire

    @property
    def overlap(self) -> str:
        return self.row.overlap

    @property
    def scope(self) -> Scope:
        return self.row.scope

    @property
    def source(self) -> Source:
        return self.row.source

    @property
    def enabled(self) -> bool:
        return self.row.enabled

    @property
    def note(self) -> str | None:
        """Why the schedule is disabled, if a reason was given."""
        return self.row.note

    @property
    def args(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.row.args)
        return found

    @property
    def options(self) -> dict[str, object]:
        """The options of its jobs."""
        return {name: value for name, value in self.row.options.items() if name not in OWN}

    @property
    def app(self) -> str | None:
        """The app whose code declares the schedule."""
        found = self.row.options.get("app")
        return None if found is None else str(found)

    @property
    def definition_id(self) -> UUID | None:
        return self.row.definition_id

    @property
    def last_fire_at(self) -> datetime | None:
        return self.row.last_fire_at

    @property
    def next_fire_at(self) -> datetime | None:
        """The next fire time; None while the schedule is disabled."""
        return self.row.next_fire_at if self.enabled else None

    def __repr__(self) -> str:
        return f"<Schedule {self.key} of {self.task}: {self.words}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and other.row == self.row

    def __hash__(self) -> int:
        return hash(self.id)


def named(key: str | UUID) -> dict[str, Any]:
    """Return the store's query arguments for a key or an id."""
    if isinstance(key, UUID):
        return {"ids": [key]}
    try:
        return {"ids": [UUID(key)]}
    except (ValueError, AttributeError, TypeError):
        return {"keys": [key]}


def definition_refusal(definition: Definition | None) -> TidemillError | None:
    """Return the error for triggering a disabled definition; None if it is enabled."""
    if definition is None or definition.enabled:
        return None
    return DefinitionDisabled(
        f"definition {definition.key!r} of tenant {definition.tenant} is disabled; enable it, or trigger it with force",
        key=definition.key,
        tenant=definition.tenant,
    )


def busy(definition: Definition, holder: UUID) -> DefinitionBusy:
    """Return the error for triggering a definition that refuses a second job."""
    return DefinitionBusy(
        f"definition {definition.key!r} of tenant {definition.tenant} refuses a second job, and job {holder} has not ended; "
        "wait for it, or save the definition with on_busy='queue'",
        key=definition.key,
        tenant=definition.tenant,
        id=holder,
    )


def taken_error(definition: Definition | None) -> Callable[[NewJob, UUID], Exception]:
    """Return the function that makes the error for a unique key that another job holds."""
    if definition is not None and refuses(definition):
        return lambda _, holder: busy(definition, holder)
    return key_taken


def trigger_refusal(row: ScheduleRow, definition: Definition | None) -> TidemillError | None:
    """Return why a schedule refuses a manual trigger; None if it does not.

    A pause stops the automatic fires of a schedule, and an operator may still trigger it. A schedule with a manual
    trigger has no other fires that a pause could stop.
    """
    if row.trigger.get("kind") == Manual.kind and not row.enabled:
        return SchedulePaused(
            f"schedule {row.key!r} of tenant {row.tenant} is paused; resume it, or trigger it with force",
            key=row.key,
            tenant=row.tenant,
        )
    if row.trigger.get("kind") == On.kind and row.trigger.get("args"):
        return BadSchedule(
            f"schedule {row.key!r} takes arguments from its event; emit {row.trigger['event']!r} instead",
            field="trigger",
        )
    return definition_refusal(definition)


def task_data_of(client: Client, task: str) -> TaskData | None:
    """Return what this app knows about a task; None for an unknown task."""
    return client.registry.get(task).data if task in client.registry else None


_HIDDEN = ("args", "notifications", "options.metadata", "settings.metadata")


def schedule_changes(
    before: ScheduleRow | None, after: ScheduleRow | None
) -> tuple[AuditData | None, AuditData | None]:
    """Return the values that differ between two states of a schedule, before and after."""
    return difference(_schedule(before), _schedule(after), _HIDDEN)


def definition_changes(
    before: Definition | None, after: Definition | None
) -> tuple[AuditData | None, AuditData | None]:
    """Return the values that differ between two states of a definition, before and after."""
    return difference(_definition(before), _definition(after), _HIDDEN)


def _schedule(row: ScheduleRow | None) -> AuditData | None:
    if row is None:
        return None
    options = {name: value for name, value in row.options.items() if name not in OWN}
    return {
        "id": str(row.id),
        "task": row.task,
        "definition_id": None if row.definition_id is None else str(row.definition_id),
        "trigger": dict(row.trigger),
        "timezone": row.timezone,
        "calendar": row.calendar,
        "exclude": row.exclude,
        "misfire": row.misfire,
        "overlap": row.overlap,
        "scope": row.scope.value,
        "source": row.source.value,
        "app": row.options.get("app"),
        "enabled": row.enabled,
        "note": row.note,
        "args": json.loads(row.args) or None,
        **_prefixed("options", options),
    }


def _definition(row: Definition | None) -> AuditData | None:
    if row is None:
        return None
    return {
        "id": str(row.id),
        "task": row.task,
        "name": row.name or None,
        "owner": row.owner,
        "version": row.version,
        "enabled": row.enabled,
        "args": json.loads(row.args) or None,
        "notifications": dict(row.notifications) or None,
        **_prefixed("settings", row.settings),
    }


def _prefixed(name: str, values: Mapping[str, object]) -> dict[str, object]:
    return {f"{name}.{key}": value for key, value in values.items()}


RULES = ("trigger", "args", "timezone", "misfire", "overlap", "calendar", "exclude", "scope")
"""The rules of a schedule; every other keyword is an option of its jobs."""


class ScheduleKeywords(TypedDict, total=False):
    """Keyword arguments of ``app.schedule`` other than task, trigger and key, for type checkers."""

    args: Mapping[str, Any] | None
    timezone: str
    misfire: Misfire
    overlap: Overlap
    calendar: BusinessCalendar | None
    exclude: Any
    scope: Literal["cluster", "instance"] | Scope | None
    tenant: str | None
    queue: str
    priority: int
    timeout: Duration | None
    retry: RetryPolicy | str | None
    tags: Iterable[str]
    metadata: Mapping[str, object]
    reference: tuple[str, str] | None
    correlation_id: str | None
    expires: Duration | None
    audit: bool | None
    record: Record | Literal["full", "last", "none"] | None
    jitter: Duration
    heartbeat: str | None
    store: str | None


def check_key(what: str, key: object) -> None:
    """Check that a key is a valid name."""
    if not isinstance(key, str):
        raise BadSchedule(f"key: {key!r} is not a {what}'s key; give a text", field="key", value=key)
    try:
        check_name(what, key)
    except BadSettings as error:
        raise BadSchedule(f"key: {error}", field="key", value=key) from None


def ruled(
    base: ScheduleRow,
    settings: Mapping[str, Any],
    declared: Declared,
    definition: Definition | None,
    now: datetime,
    limits: PayloadLimits,
) -> ScheduleRow:
    """Return the schedule with these rules and options applied, and with its next fire."""
    changes: dict[str, Any] = {}
    options: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in settings.items():
        if name in RULES:
            changes[name] = _rule(name, value)
        elif name == HEARTBEAT:
            own[HEARTBEAT] = None if value is None else _heartbeat(value)
        else:
            options[name] = value
    trigger = changes.get("trigger", base.trigger)
    later = trigger.get("args") if trigger.get("kind") == On.kind else None
    if "args" in settings or "trigger" in settings or not base.revision:
        given = settings.get("args") if "args" in settings or not base.revision else json.loads(base.args)
        changes["args"] = _args(declared, definition, given, limits, later or {})
    kept = {name: value for name, value in base.options.items() if name not in ("defaults", "limits")}
    changes["options"] = {**kept, **read_job_options(options), **own, "defaults": declared.data}
    made = _reactive(replace(base, **changes), settings)
    # Compute limit keys that need the task's code now: the process that fires the schedule may not have the code.
    if names := called_names(declared.options, made.tenant, lambda: _values(declared, made, definition)):
        made = replace(made, options={**made.options, "limits": list(names)})
    return dated(made, now)


def _heartbeat(url: object) -> str:
    """Check the address of a monitor. Whether it is public is checked at each ping, because names may change."""
    try:
        read_url(str(url), what="heartbeat")
    except BadSettings as error:
        raise BadSchedule(error.message, field=HEARTBEAT, value=url) from None
    return str(url)


def _reactive(made: ScheduleRow, settings: Mapping[str, Any]) -> ScheduleRow:
    """Return the schedule with the overlap policy of its trigger, unless one is given; refuse rules that a reactive trigger lacks."""
    trigger = read_rules(replace(made, overlap=made.overlap or "skip")).trigger
    if not isinstance(trigger, ReactiveTrigger):
        return replace(made, overlap=made.overlap or "skip")
    for field, differs, why in (
        ("misfire", made.misfire != "once", "every fire happens, however late"),
        ("calendar", made.calendar is not None, "it has no days"),
        ("exclude", made.exclude is not None, "it has no days"),
        ("scope", made.scope is not Scope.CLUSTER, "it fires once in the cluster"),
    ):
        if differs:
            raise BadSchedule(f"{field}: {type(trigger).__name__} takes none: {why}", field=field)
    given = settings.get("overlap") if "overlap" in settings or not made.revision else made.overlap
    return replace(made, overlap=given or trigger.default_overlap)


def dated(schedule: ScheduleRow, now: datetime) -> ScheduleRow:
    """Return the schedule with its next fire after ``now``."""
    rules = read_rules(schedule)
    following = first_fire(rules.trigger, now, rules.zone, rules.calendar, rules.exclude)
    return replace(schedule, next_fire_at=following)


def _values(declared: Declared, made: ScheduleRow, definition: Definition | None) -> dict[str, Any]:
    return {**declared.arguments.defaults(), **json.loads(merged_args(made, definition))}


def _rule(name: str, value: Any) -> Any:
    match name:
        case "trigger":
            return as_trigger(value).to_data()
        case "timezone":
            return value.key if isinstance(value, ZoneInfo) else zone_of(value).key
        case "misfire":
            check_misfire(value)
            return misfire_to_data(value)
        case "overlap" if value is not None:
            check_overlap(value)
        case "calendar" if value is not None:
            if not isinstance(value, BusinessCalendar):
                raise BadSchedule(
                    f"calendar: {value!r} is not a BusinessCalendar", field="calendar", value=value
                )
            return value.to_data()
        case "exclude" if value is not None:
            found = as_exclude(value)
            return None if found is None else found.to_data()
        case "scope":
            if value not in tuple(Scope):
                raise BadSchedule(
                    f"scope: {value!r} is not a scope; choose {' or '.join(Scope)}",
                    field="scope",
                    value=value,
                )
            return Scope(value)
    return value


def as_trigger(given: object) -> Trigger:
    """Return a trigger, parsing a text as a cron expression."""
    if isinstance(given, str):
        return Cron(given)
    if not isinstance(given, Trigger):
        raise BadSchedule(
            f"trigger: {given!r} is not a trigger; give one such as Cron('0 2 * * *') or Daily('06:00')",
            field="trigger",
            value=given,
        )
    return given


def read_job_options(given: Mapping[str, Any], own: Sequence[str] = RULES) -> dict[str, object]:
    """Check the options of the jobs and return them as plain data. ``own`` lists other valid options for errors."""
    for name in given:
        if name in REFUSED:
            raise BadSchedule(f"{name}: {REFUSED[name]}", field=name)
        if name not in OPTIONS:
            raise BadSchedule(
                f"{name}: there is no such option here; there are {', '.join((*own, *OPTIONS))}", field=name
            )
    rest = dict(given)
    jitter = rest.pop("jitter", None)
    if jitter is not None:
        jitter = read_duration("jitter", jitter, error=BadSchedule, field="jitter").total_seconds()
        if jitter < 0:
            raise BadSchedule(f"jitter: {jitter:g} seconds is negative; give zero or more", field="jitter")
    if str(rest.get("queue", "")).startswith(NODE_QUEUE):
        raise BadSchedule(
            f"queue: {rest['queue']!r} begins with {NODE_QUEUE!r}, as only the queues of nodes and runners do; use scope='instance' or scope='process'",
            field="queue",
        )
    _check_plain("metadata", rest.get("metadata"))
    values = read_call(rest)
    if isinstance(values.get("expires"), datetime):
        raise BadSchedule("expires: give a duration, which counts from each fire", field="expires")
    data = options_to_data(values)
    if "retry" in data and data["retry"] is None:
        raise BadSchedule(
            f"retry: {values['retry']!r} cannot be stored; use one of our policies, or set it on the task",
            field="retry",
        )
    if jitter is not None:
        data["jitter"] = jitter
    for name, value in data.items():
        _check_plain(name, value)
    return data


def _check_plain(name: str, value: object) -> None:
    if flaw := data_flaw(value):
        raise BadSchedule(f"{name}: it cannot be stored, for it is not plain data: {flaw}", field=name)


def _args(
    declared: Declared,
    definition: Definition | None,
    given: object,
    limits: PayloadLimits,
    later: Collection[str] = (),
) -> str:
    """Return the schedule's own arguments as JSON, checked together with those of its definition.

    ``later`` are the arguments that each fire takes from its event.
    """
    own = {} if given is None else given
    if not isinstance(own, Mapping) or not all(isinstance(name, str) for name in own):
        raise BadArguments(
            f"args: {given!r} are not arguments; give a dictionary by their names", field="args"
        )
    if secret := [name for name in declared.arguments.secrets if own.get(name) is not None]:
        raise BadArguments(
            f"{secret[0]} of task {declared.name} is a secret, which a schedule cannot hold; "
            "save it in a definition and schedule that",
            field=secret[0],
        )
    around = (
        {} if definition is None else declared.arguments.load(definition.args, definition.id, definition.id)
    )
    if unknown := [name for name in later if name not in declared.arguments.names]:
        raise BadArguments(
            f"args: task {declared.name} has no argument {unknown[0]!r}, which the trigger takes from the event",
            field="args",
        )
    codec = declared.arguments.without(later) if later else declared.arguments
    values = {name: value for name, value in {**around, **own}.items() if name not in later}
    text = codec.dump((), values).text
    limits.check_args(declared.name, text)
    if definition is None:
        return text
    return json.dumps({name: value for name, value in json.loads(text).items() if name in own})


def encoded(declared: Declared, given: Mapping[str, Any], limits: PayloadLimits) -> str:
    """Return a call's arguments as JSON."""
    return _args(declared, None, given, limits)


def sealed_parameters(
    declared: Declared, given: Mapping[str, Any], limits: PayloadLimits, definition: UUID
) -> str:
    """Return the arguments of a definition as JSON, the secret ones sealed for it."""
    secrets = declared.arguments.secrets
    if not secrets:
        return encoded(declared, given, limits)
    text = declared.arguments.dump((), dict(given)).text
    limits.check_args(declared.name, text)
    return seal_parameters(text, secrets, definition)


def sealed_call(declared: Declared, given: Mapping[str, Any], limits: PayloadLimits, job: UUID) -> str:
    """Return the arguments of a job as JSON, the secret ones sealed for it."""
    secrets = declared.arguments.secrets
    if not secrets:
        return encoded(declared, given, limits)
    text = declared.arguments.dump((), dict(given)).text
    limits.check_args(declared.name, text)
    return seal_arguments(text, secrets, job)


def same_rules(one: ScheduleRow, other: ScheduleRow) -> bool:
    """Whether two schedules have the same rules; the stored defaults of their tasks are ignored."""
    return _words(one) == _words(other)


def _words(row: ScheduleRow) -> str:
    options = {name: value for name, value in row.options.items() if name != "defaults"}
    fields = [
        row.task, row.trigger, row.timezone, row.calendar, row.exclude, json.loads(row.args), row.misfire,
        row.overlap, row.scope, str(row.definition_id), options,
    ]  # fmt: skip
    return json.dumps(fields, sort_keys=True, default=str)
