"""What one call may say differently from its task: the options of ``using`` and of recipes, checked when they are said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, TypedDict
from uuid import UUID

from tidemill.domain.bounds import check_data, check_instant, check_key, check_span, check_text
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings
from tidemill.tasks.options import (
    check_name,
    check_priority,
    check_queue,
    check_timeout,
    check_unique,
    read_retry,
)

_UNSET: Any = object()


class CallKeywords(TypedDict, total=False):
    """The options of ``using`` and of recipes, for type checkers."""

    priority: int
    queue: str
    run_after: datetime | timedelta | None
    delay: timedelta | None
    tenant: str | None
    correlation_id: str | None
    parent: Any
    tags: Iterable[str]
    metadata: Mapping[str, object]
    reference: tuple[str, str] | None
    unique: Unique | None
    expires: datetime | timedelta | None
    store: str | None
    tier: str | None
    audit: bool | None
    connection: Any
    retry: RetryPolicy | str | None
    timeout: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """Everything a call may set; what is left out comes from the task."""

    priority: int = _UNSET
    queue: str = _UNSET
    run_after: datetime | timedelta | None = None
    delay: timedelta | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    parent: Any = _UNSET
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    reference: tuple[str, str] | None = None
    unique: Unique | None = _UNSET
    expires: datetime | timedelta | None = None
    store: str | None = None
    tier: str | None = None
    audit: bool | None = None
    connection: Any = None
    retry: RetryPolicy = _UNSET
    timeout: timedelta | None = _UNSET

    def given(self, name: str, otherwise: Any) -> Any:
        """The option, or what holds without it."""
        value = getattr(self, name)
        return otherwise if value is _UNSET else value

    def merged(self, changes: Mapping[str, Any]) -> CallOptions:
        """These options with others over them; metadata and tags add up."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        new = read_call(changes)
        new["metadata"] = {**self.metadata, **new.get("metadata", {})}
        new["tags"] = tuple(dict.fromkeys((*self.tags, *new.get("tags", ()))))
        return CallOptions(**(values | new))


NO_OPTIONS = CallOptions()


def read_call(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options as users write them, checked one by one."""
    known = {item.name for item in fields(CallOptions)}
    values = dict(given)
    for name in values:
        if name not in known:
            raise BadSettings(
                f"there is no option {name!r}; there are {', '.join(sorted(known))}", option=name
            )
    if "priority" in values:
        check_priority(values["priority"])
    if "queue" in values:
        check_queue(values["queue"])
    if "unique" in values:
        check_unique(values["unique"])
    if values.get("tenant") is not None:
        check_name("tenant", values["tenant"])
    if "timeout" in values:
        check_timeout(values["timeout"])
    if "retry" in values:
        values["retry"] = read_retry(values["retry"])
    _check_times(values)
    return values | _details(values)


def _details(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept with the job for people and programs to find it by."""
    for name in ("correlation_id", "tier"):
        check_text(name, given.get(name))
    found: dict[str, Any] = {}
    if "tags" in given:
        found["tags"] = _tags(given["tags"])
    if "metadata" in given:
        found["metadata"] = _metadata(given["metadata"])
    if given.get("reference") is not None:
        found["reference"] = read_reference(given["reference"])
    return found


def _check_times(values: Mapping[str, Any]) -> None:
    for name in ("run_after", "expires"):
        _check_instant(name, values.get(name))
    if values.get("run_after") is not None and values.get("delay") is not None:
        raise BadSettings("run_after and delay both say when; give one of them")
    delay = values.get("delay")
    if delay is not None and not isinstance(delay, timedelta):
        raise BadSettings(
            f"delay is {delay!r}; give a timedelta, such as timedelta(seconds=5)", option="delay"
        )
    if delay is not None:
        check_span("delay", delay)


def _check_instant(name: str, value: datetime | timedelta | None) -> None:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise BadSettings(
            f"{name} is {value.isoformat()}, which has no time zone; give an aware datetime", option=name
        )
    if value is not None and not isinstance(value, datetime | timedelta):
        raise BadSettings(f"{name} is {value!r}; give an aware datetime or a timedelta", option=name)
    if isinstance(value, datetime):
        check_instant(name, value)
    elif value is not None:
        check_span(name, value)


def _tags(tags: Any) -> tuple[str, ...]:
    found = None if isinstance(tags, str) or not isinstance(tags, Iterable) else tuple(tags)
    if found is None or not all(isinstance(tag, str) for tag in found):
        raise BadSettings(f"tags are {tags!r}; give a list of texts", option="tags")
    for tag in found:
        check_text("tags", tag)
    return found


def _metadata(metadata: Any) -> dict[str, object]:
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        raise BadSettings(
            f"metadata is {metadata!r}; give a dictionary with texts as keys", option="metadata"
        )
    check_data("metadata", dict(metadata))
    return dict(metadata)


def read_reference(reference: Any) -> tuple[str, str]:
    """What a job is about: a kind and an id, as texts."""
    if not isinstance(reference, tuple | list) or len(reference) != 2:
        raise BadSettings(
            f'reference is {reference!r}; give a kind and an id, such as ("user", "42")', option="reference"
        )
    kind, id = str(reference[0]), str(reference[1])
    check_key("reference", kind)
    check_key("reference", id)
    return kind, id


def id_of(job: Any) -> UUID | None:
    """The id of a job given as a handle, an id or its text."""
    match job:
        case None:
            return None
        case UUID():
            return job
        case str():
            try:
                return UUID(job)
            except ValueError:
                raise BadSettings(f"{job!r} is not a job's id", id=job) from None
        case _:
            found: UUID = job.id
            return found
