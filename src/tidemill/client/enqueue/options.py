"""Options of a single call, from ``using`` and recipes, with their checks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict
from uuid import UUID

from tidemill.client.access import who
from tidemill.clock import Clock
from tidemill.domain.bounds import (
    check_headers,
    check_key,
    check_metadata,
    check_name,
    check_queue,
    check_span,
    check_tags,
    check_text,
)
from tidemill.domain.decide import OrphanRule
from tidemill.domain.durations import Duration, read_optional, read_when
from tidemill.domain.job import NO_DETAILS, Details, NewJob
from tidemill.domain.job_requests import REFUSED, limit_names
from tidemill.domain.large_values import ARGUMENTS, BlobKey, spilled
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.record import Record, read_record
from tidemill.domain.retry import RetryPolicy, policy_to_data
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings, UsageError
from tidemill.ids import new_id
from tidemill.tasks.ambient import Collector, current_collector, current_job, current_tenant
from tidemill.tasks.codec import Encoded
from tidemill.tasks.limits import names_for
from tidemill.tasks.options import check_priority, check_unique, read_retry, read_timeout
from tidemill.tasks.secret_values import check_secret_unique, seal_arguments
from tidemill.tasks.task import Declared

if TYPE_CHECKING:
    from tidemill.client.core import Client

_UNSET: Any = object()


class CallKeywords(TypedDict, total=False):
    """The options of ``using`` and of recipes, for type checkers."""

    priority: int
    queue: str
    run_after: datetime | Duration | None
    delay: Duration | None
    tenant: str | None
    correlation_id: str | None
    parent: Any
    tags: Iterable[str]
    metadata: Mapping[str, object]
    headers: Mapping[str, str]
    reference: tuple[str, str] | None
    unique: Unique | None
    expires: datetime | Duration | None
    store: str | None
    audit: bool | None
    connection: Any
    retry: RetryPolicy | str | None
    timeout: Duration | None
    record: Record | Literal["full", "last", "none"] | None


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
    record: Record | None = None

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
        values["timeout"] = read_timeout(values["timeout"])
    if "retry" in values:
        values["retry"] = read_retry(values["retry"])
    if values.get("record") is not None:
        values["record"] = read_record(values["record"])
    return values | _times(values) | _details(values)


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


def _times(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the times and durations of a job."""
    if given.get("run_after") is not None and given.get("delay") is not None:
        raise BadSettings("run_after and delay are both given; give only one")
    found: dict[str, Any] = {
        name: read_when(name, given[name]) for name in ("run_after", "expires") if name in given
    }
    if "delay" in given:
        found["delay"] = read_optional("delay", given["delay"], option="delay")
        if found["delay"] is not None:
            check_span("delay", found["delay"])
    return found


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
                raise BadSettings(
                    f"{job!r} is not a job's id; give all 36 characters of it", id=job
                ) from None
        case _:
            found: UUID = job.id
            return found


# Where the jobs of a call go -------------------------------------------------------------------------------------------


def collector_for(client: Client, declared: Declared, call: CallOptions, place: str) -> Collector | None:
    """Return the block that collects this call's jobs; None if they go to a store or to the user's connection.

    Raises ``UsageError`` for a call that cannot be stored with the running job's completion.
    """
    block = current_collector()
    if block is None:
        return None
    if call.connection is not None:
        if block.declared is None:
            raise UsageError(
                f"{declared.name} cannot be enqueued on connection= inside a batch, which writes its jobs itself;"
                " enqueue it outside the block"
            )
        if block.only:
            raise UsageError(
                f"ctx.then writes {declared.name} with the completion of this job, not on connection=; leave connection= out,"
                " or call enqueue"
            )
        return None
    running = block.declared
    if running is None:
        return block  # of a batch
    if running.name not in client.registry or client.registry.get(running.name) is not running:
        raise UsageError(
            f"{declared.name} is a task of another app than {running.name}, the running job; enqueue it outside"
            " ctx.transaction()"
        )
    if client.store(place) is not client.store(client.placement.of_job()):
        raise UsageError(
            f"{declared.name} goes to the store {place!r}, which is not the store of the running job;"
            " enqueue it outside ctx.transaction()"
        )
    rule: Unique | None = call.given("unique", declared.options.unique)
    if rule is not None and (rule.on_conflict != "return" or rule.failed == "retry"):
        option = "failed='retry'" if rule.failed == "retry" else f"on_conflict={rule.on_conflict!r}"
        raise UsageError(
            f"{declared.name} has {option}, which needs the store's answer, and the job is written only"
            " when this one completes; use on_conflict='return', or enqueue it outside ctx.transaction()"
        )
    return block


def check_changes_nothing_else(rule: Unique | None) -> None:
    """Refuse a unique rule that a write in the user's own transaction cannot carry out."""
    if rule is not None and (rule.on_conflict in ("replace", "extend") or rule.failed == "retry"):
        option = "failed='retry'" if rule.failed == "retry" else f"on_conflict={rule.on_conflict!r}"
        raise UsageError(f"{option} changes another job, which a connection= of yours cannot")


def audited_by(declared: Declared, call: CallOptions) -> str | None:
    """Return the identity for the audit, if the call or its task asks for an audit record."""
    audited = declared.options.audit if call.audit is None else call.audit
    return who() if audited else None


# Jobs from options ------------------------------------------------------------------------------------------------------

LONGEST_CORRELATION = 64


class Template:
    """The common part of one call's jobs, computed once."""

    def __init__(
        self, declared: Declared, call: CallOptions, *, tenant: str, limits: PayloadLimits, clock: Clock
    ) -> None:
        self.declared = declared
        options = declared.options
        retry: RetryPolicy = call.given("retry", options.retry)
        self._name = options.name
        self._dump = declared.arguments.dump
        self._secrets = declared.arguments.secrets
        self._limits, self._most = limits, limits.args
        self._unique: Unique | None = call.given("unique", options.unique)
        self._by = _unique_names(declared, self._unique)
        self._plain = NewJob(
            id=new_id(),
            task=options.name,
            tenant=call.tenant or current_tenant() or tenant,
            queue=call.given("queue", options.queue),
            priority=call.given("priority", options.priority),
            max_attempts=retry.max_attempts,
            timeout=call.given("timeout", options.timeout),
            run_at=call.run_after if isinstance(call.run_after, datetime) else None,
            delay=call.run_after if isinstance(call.run_after, timedelta) else call.delay,
            expires_at=clock.now() + call.expires if isinstance(call.expires, timedelta) else call.expires,
            details=_job_details(declared, call),
        )
        self._rest = self._plain[3:]
        self._counted = options if options.is_limited else None
        self._defaults = declared.arguments.defaults() if options.limits else {}
        self._recorded = declared.recorded

    def job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """Return the job for these arguments; rejects invalid and oversized ones."""
        return self.job_of(self._dump(tuple(args), kwargs))

    def job_of(self, encoded: Encoded) -> NewJob:
        """Return the job for arguments that were encoded elsewhere."""
        text = encoded.text
        id = new_id()
        if self._secrets:
            text = seal_arguments(text, self._secrets, id)
            # Keys of limits and unique rules are computed without the plain values.
            encoded = Encoded(text)
        # The length in bytes is needed only here.
        if (len(text) > self._most or not text.isascii()) and self._limits.is_large(self._name, text):
            text = spilled(text, BlobKey(id, ARGUMENTS))
        job = NewJob._make((id, self._name, text, *self._rest))
        if self._counted is not None:
            names = names_for(self._counted, job.tenant, lambda: {**self._defaults, **encoded.values})
            job = job._replace(limits=names)
        elif self._recorded is not None:
            names = tuple(sorted(limit_names(self._name, self._recorded, job.tenant, encoded.text)))
            job = job._replace(limits=names)
        if self._unique is None:
            return job
        return job._replace(unique=self._unique.hold(self._name, {**self._by, **encoded.values}))


def _unique_names(declared: Declared, unique: Unique | None) -> dict[str, object]:
    """Return the arguments that form a unique key; one that a call leaves at its default counts as null."""
    if unique is None:
        return {}
    unknown = [name for name in unique.by if name not in declared.arguments.names]
    if unknown:
        known = ", ".join(declared.arguments.names) or "none"
        raise BadSettings(f"task {declared.name}: unique is by {unknown[0]!r}, its arguments are {known}")
    check_secret_unique(declared.name, unique, declared.arguments.secrets)
    return dict.fromkeys(unique.by)


def _job_details(declared: Declared, call: CallOptions) -> Details:
    surroundings = current_job()
    parent = id_of(call.given("parent", None if surroundings is None else surroundings.job_id))
    correlation = call.correlation_id or (
        surroundings.correlation_id if surroundings is not None else _trace_id()
    )
    if correlation is not None and not 0 < len(correlation) <= LONGEST_CORRELATION:
        raise BadSettings(
            f"correlation_id has {len(correlation)} characters; give 1 to {LONGEST_CORRELATION}"
        )
    tags = tuple(dict.fromkeys((*declared.options.tags, *call.tags)))
    check_tags(f"task {declared.name}: tags", tags)
    options = _stored(declared, call)
    if not (correlation or parent or tags or call.metadata or call.headers or call.reference or options):
        return NO_DETAILS
    return Details(
        correlation_id=correlation,
        parent_id=parent,
        reference=call.reference,
        tags=tags,
        metadata=dict(call.metadata),
        headers=dict(call.headers),
        options=options,
    )


def _stored(declared: Declared, call: CallOptions) -> dict[str, object]:
    """Return the options stored with the job, for processes that handle it without knowing the task."""
    options: dict[str, object] = {}
    if declared.options.orphans is not OrphanRule.REQUEUE:
        options["orphans"] = declared.options.orphans.value
    policy = call.given("retry", None)
    if policy is not None:
        data = policy_to_data(policy)
        if data is None:
            raise BadSettings(
                f"{policy!r} cannot be stored with a job; use one of our policies, or set it on the task"
            )
        options["retry"] = data
    if call.audit is not None:
        options["audit"] = call.audit
    if call.record is not None and call.record is not declared.options.record:
        options["record"] = call.record.value
    return options


def _trace_id() -> str | None:
    """Return the id of the current trace if OpenTelemetry is in use; this function never imports it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
