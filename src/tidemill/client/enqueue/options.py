"""Options of a single call, from ``using`` and recipes, with their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, TypedDict
from uuid import UUID

from tidemill.domain.bounds import (
    check_headers,
    check_instant,
    check_key,
    check_metadata,
    check_span,
    check_tags,
    check_text,
)
from tidemill.domain.job_requests import REFUSED
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
    headers: Mapping[str, str]
    reference: tuple[str, str] | None
    unique: Unique | None
    expires: datetime | timedelta | None
    store: str | None
    audit: bool | None
    connection: Any
    retry: RetryPolicy | str | None
    timeout: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """All options of a call; omitted ones come from the task."""

    priority: int = _UNSET
    queue: str = _UNSET
    run_after: datetime | timedelta | None = None
    delay: timedelta | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    parent: Any = _UNSET
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    reference: tuple[str, str] | None = None
    unique: Unique | None = _UNSET
    expires: datetime | timedelta | None = None
    store: str | None = None
    audit: bool | None = None
    connection: Any = None
    retry: RetryPolicy = _UNSET
    timeout: timedelta | None = _UNSET

    def given(self, name: str, otherwise: Any) -> Any:
        """Return the option, or the given default if it is not set."""
        value = getattr(self, name)
        return otherwise if value is _UNSET else value

    def merged(self, changes: Mapping[str, Any]) -> CallOptions:
        """Return these options overridden by others; metadata, headers and tags are merged."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        new = read_call(changes)
        metadata = {**self.metadata, **new.get("metadata", {})}
        if self.metadata and new.get("metadata"):
            check_metadata(metadata)
        new["metadata"] = metadata
        headers = {**self.headers, **new.get("headers", {})}
        if self.headers and new.get("headers"):
            check_headers(headers)
        new["headers"] = headers
        new["tags"] = tuple(dict.fromkeys((*self.tags, *new.get("tags", ()))))
        return CallOptions(**(values | new))


NO_OPTIONS = CallOptions()


def read_call(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check options as users write them, one by one."""
    known = {item.name for item in fields(CallOptions)}
    values = dict(given)
    for name in values:
        if name in REFUSED:
            raise BadSettings(f"{name}: {REFUSED[name]}", option=name)
        if name not in known:
            raise BadSettings(
                f"unknown option {name!r}; expected one of {', '.join(sorted(known))}", option=name
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
    """Return the descriptive options of a job, such as tags and metadata."""
    check_text("correlation_id", given.get("correlation_id"))
    found: dict[str, Any] = {}
    if "tags" in given:
        found["tags"] = _tags(given["tags"])
    if "metadata" in given:
        found["metadata"] = _metadata(given["metadata"])
    if "headers" in given:
        check_headers(given["headers"])
        found["headers"] = dict(given["headers"])
    if given.get("reference") is not None:
        found["reference"] = read_reference(given["reference"])
    return found


def _check_times(values: Mapping[str, Any]) -> None:
    for name in ("run_after", "expires"):
        check_when(name, values.get(name))
    if values.get("run_after") is not None and values.get("delay") is not None:
        raise BadSettings("run_after and delay are both given; give only one")
    delay = values.get("delay")
    if delay is not None and not isinstance(delay, timedelta):
        raise BadSettings(
            f"delay is {delay!r}; give a timedelta, such as timedelta(seconds=5)", option="delay"
        )
    if delay is not None:
        check_span("delay", delay)


def check_when(name: str, value: datetime | timedelta | None) -> None:
    """Reject a value that is neither an aware datetime nor a timedelta."""
    if isinstance(value, datetime) and value.tzinfo is None:
        raise BadSettings(
            f"{name} is {value.isoformat()}, which has no time zone; give an aware datetime", option=name
        )
    if value is not None and not isinstance(value, datetime | timedelta):
        raise BadSettings(
            f"{name} is {value!r}; give an aware datetime or a timedelta, such as timedelta(seconds=5)",
            option=name,
        )
    if isinstance(value, datetime):
        check_instant(name, value)
    elif value is not None:
        check_span(name, value)


def _tags(tags: Any) -> tuple[str, ...]:
    found = None if isinstance(tags, str) or not isinstance(tags, Iterable) else tuple(tags)
    if found is None or not all(isinstance(tag, str) for tag in found):
        raise BadSettings(f"tags are {tags!r}; give a list of texts", option="tags")
    check_tags("tags", found)
    return found


def _metadata(metadata: Any) -> dict[str, object]:
    if not isinstance(metadata, Mapping) or not all(isinstance(key, str) for key in metadata):
        raise BadSettings(
            f"metadata is {metadata!r}; give a dictionary with texts as keys", option="metadata"
        )
    check_metadata(dict(metadata))
    return dict(metadata)


def read_reference(reference: Any) -> tuple[str, str]:
    """Return a reference to the subject of a job: a kind and an id, also accepted as one text, ``"user:42"``."""
    if isinstance(reference, str) and ":" in reference:
        reference = reference.split(":", 1)
    if not isinstance(reference, tuple | list) or len(reference) != 2:
        raise BadSettings(
            f'reference is {reference!r}; give a kind and an id, such as ("user", "42") or "user:42"',
            option="reference",
        )
    kind, id = str(reference[0]), str(reference[1])
    check_key("reference", kind)
    check_key("reference", id)
    return kind, id


def id_of(job: Any) -> UUID | None:
    """Return the id of a job, given a handle, an id or its text."""
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
