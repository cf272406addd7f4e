"""Triggers without a time: after other definitions, and on events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.every import Moment
from tidemill.domain.triggers.timeline import Timeline
from tidemill.domain.triggers.words import joined, span_text
from tidemill.errors import BadSchedule

MOST_SOURCES = 50
"""The largest number of definitions that one trigger waits for."""
_LONGEST = 200
_ENDS = ("success", "failure", "end")
_PERIODS = ("day", "week")


class SourceKind(StrEnum):
    """The sources of a reactive trigger."""

    DEFINITION = "definition"
    EVENT = "event"


class TriggerSource(NamedTuple):
    """A definition whose jobs end, or an event that is emitted, by key or name."""

    kind: SourceKind
    name: str


class ReactiveTrigger(Trigger):
    """A trigger that fires when something happens. It has no next fire."""

    __slots__ = ()

    default_overlap: ClassVar[Literal["allow", "queue"]] = "allow"

    @property
    def sources(self) -> tuple[TriggerSource, ...]:
        """The sources of the trigger."""
        raise NotImplementedError

    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        return Moment(None)


@dataclass(frozen=True, slots=True, init=False)
class After(ReactiveTrigger, kind="after"):
    """After a job of each of these definitions ended: once for each set of ends.

    ``on`` is the end that counts: ``success``, ``failure`` or ``end``. An end counts for ``fresh`` (None: without a bound), and with
    ``same`` only together with ends of the same local day or week of the schedule.
    """

    definitions: tuple[str, ...]
    fresh: timedelta | None
    on: Literal["success", "failure", "end"]
    same: Literal["day", "week"] | None

    default_overlap: ClassVar[Literal["allow", "queue"]] = "queue"

    def __init__(
        self,
        *definitions: str,
        fresh: Duration | None = timedelta(hours=24),
        on: Literal["success", "failure", "end"] = "success",
        same: Literal["day", "week"] | None = None,
    ) -> None:
        if not definitions:
            raise BadSchedule("after: name at least one definition", field="definitions")
        if len(definitions) > MOST_SOURCES:
            raise BadSchedule(
                f"after: {len(definitions)} definitions are more than {MOST_SOURCES}", field="definitions"
            )
        for key in definitions:
            _check_name("definitions", key)
        if len(set(definitions)) < len(definitions):
            raise BadSchedule("after: a definition is named twice", field="definitions")
        if on not in _ENDS:
            raise BadSchedule(
                f"on: {on!r} is unknown; expected one of {', '.join(_ENDS)}", field="on", value=on
            )
        if same is not None and same not in _PERIODS:
            raise BadSchedule(
                f"same: {same!r} is unknown; expected one of {', '.join(_PERIODS)}", field="same", value=same
            )
        span = None if fresh is None else read_duration("fresh", fresh, error=BadSchedule, field="fresh")
        if span is not None and span <= timedelta(0):
            raise BadSchedule(f"fresh: {span} is not longer than zero", field="fresh", value=span)
        for name, value in (("definitions", definitions), ("fresh", span), ("on", on), ("same", same)):
            object.__setattr__(self, name, value)

    @property
    def sources(self) -> tuple[TriggerSource, ...]:
        return tuple(TriggerSource(SourceKind.DEFINITION, key) for key in self.definitions)

    def explain(self) -> str:
        ends = {"success": "completed", "failure": "failed", "end": "ended"}
        text = f"After {joined(list(self.definitions))} {ends[self.on]}"
        if len(self.definitions) > 1 and self.same is not None:
            text += f", all in one {self.same}"
        if len(self.definitions) > 1 and self.fresh is not None:
            span = span_text(self.fresh)
            text += f", within {span if span[0].isdigit() else f'one {span}'}"
        return text

    def fields(self) -> dict[str, object]:
        fresh = None if self.fresh is None else self.fresh.total_seconds()
        return {"definitions": list(self.definitions), "fresh": fresh, "on": self.on, "same": self.same}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> After:
        names = fields["definitions"]
        if not isinstance(names, list | tuple):
            raise BadSchedule(f"definitions: {names!r} is not a list of keys", field="definitions")
        return cls(
            *names,
            fresh=fields.get("fresh", 86_400),
            on=fields.get("on", "success"),
            same=fields.get("same"),
        )


@dataclass(frozen=True, slots=True, init=False)
class On(ReactiveTrigger, kind="on"):
    """On every event of a name, once for each.

    ``match`` and ``where`` restrict it to events with this match and with these values in their payload. ``args`` takes arguments
    of the job from the payload: ``{"order": "$.id"}``; ``"$"`` is the whole payload.
    """

    event: str
    match: str | None
    where: Mapping[str, object]
    args: Mapping[str, str]

    def __init__(
        self,
        event: str,
        *,
        match: object = None,
        where: Mapping[str, object] | None = None,
        args: Mapping[str, str] | None = None,
    ) -> None:
        _check_name("event", event)
        for path in (args or {}).values():
            _check_path("args", path)
        try:
            condition = json.loads(json.dumps(dict(where or {})))
        except (TypeError, ValueError):
            raise BadSchedule(f"where: {where!r} is not plain data", field="where") from None
        for name in condition:
            _check_path("where", _as_path(name))
        values = {
            "event": event,
            "match": None if match is None else str(match),
            "where": condition,
            "args": dict(args or {}),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    if TYPE_CHECKING:

        def __hash__(self) -> int: ...

    else:

        def __hash__(self) -> int:
            return hash((self.event, self.match, json.dumps(self.fields(), sort_keys=True)))

    @property
    def sources(self) -> tuple[TriggerSource, ...]:
        return (TriggerSource(SourceKind.EVENT, self.event),)

    def accepts(self, match: str, payload: object) -> bool:
        """Whether an event with this match and payload fires."""
        if self.match is not None and self.match != match:
            return False
        return all(read_path(payload, _as_path(name)) == value for name, value in self.where.items())

    def arguments(self, payload: object) -> dict[str, object]:
        """The arguments that the job takes from the payload; a missing value is None."""
        return {name: read_path(payload, path) for name, path in self.args.items()}

    def explain(self) -> str:
        text = f"On every event {self.event}"
        if self.match is not None:
            text += f" for {self.match}"
        if self.where:
            text += " with " + joined([f"{name} {json.dumps(value)}" for name, value in self.where.items()])
        return text

    def fields(self) -> dict[str, object]:
        return {
            "event": self.event,
            "match": self.match,
            "where": dict(self.where),
            "args": dict(self.args),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> On:
        for name in ("where", "args"):
            if not isinstance(fields.get(name) or {}, Mapping):
                raise BadSchedule(f"{name}: {fields[name]!r} is not an object", field=name)
        return cls(
            fields["event"], match=fields.get("match"), where=fields.get("where"), args=fields.get("args")
        )


def sources_of(trigger: Mapping[str, object]) -> tuple[TriggerSource, ...]:
    """The sources of a stored trigger; none for a trigger with times, and for one that cannot be read.

    >>> sources_of(After("extract").to_data())
    (TriggerSource(kind=<SourceKind.DEFINITION: 'definition'>, name='extract'),)
    """
    kinds: dict[str, type[After | On]] = {After.kind: After, On.kind: On}
    kind = kinds.get(str(trigger.get("kind")))
    if kind is None:
        return ()
    try:
        return kind.from_fields(trigger).sources
    except (BadSchedule, KeyError, TypeError, ValueError):
        return ()


def read_path(payload: object, path: str) -> object:
    """The value at a path such as ``$.order.id``; None if there is none.

    >>> read_path({"order": {"id": 7}}, "$.order.id"), read_path([1], "$.order")
    (7, None)
    """
    value = payload
    for part in path.split(".")[1:]:
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _as_path(name: str) -> str:
    return name if name.startswith("$") else f"$.{name}"


def _check_path(field: str, path: object) -> None:
    if not isinstance(path, str) or path.split(".")[0] != "$" or not all(path.split(".")):
        raise BadSchedule(
            f"{field}: {path!r} is not a path into the payload; write $ or $.name or $.name.name", field=field
        )


def _check_name(field: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise BadSchedule(
            f"{field}: {name!r} is not a name; give 1 to {_LONGEST} printable characters", field=field
        )
