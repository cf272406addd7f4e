"""Construction of ``NewJob``s from a call, the task's options and the context."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tidemill.client.enqueue.options import CallOptions, id_of
from tidemill.clock import Clock
from tidemill.domain.bounds import check_tags
from tidemill.domain.decide import OrphanRule
from tidemill.domain.job import NO_DETAILS, Details, NewJob
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.retry import RetryPolicy, policy_to_data
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings
from tidemill.ids import new_id
from tidemill.tasks.ambient import current_job, current_tenant
from tidemill.tasks.limits import names_for
from tidemill.tasks.task import Declared

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
        self._limits = limits
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
            details=_details(declared, call),
        )
        self._rest = self._plain[3:]
        self._counted = options if options.is_limited else None
        self._defaults = declared.arguments.defaults() if options.limits else {}

    def job(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewJob:
        """Return the job for these arguments; rejects invalid and oversized ones."""
        encoded = self._dump(tuple(args), kwargs)
        self._limits.check_args(self._name, encoded.text)
        job = NewJob._make((new_id(), self._name, encoded.text, *self._rest))
        if self._counted is not None:
            names = names_for(self._counted, job.tenant, lambda: {**self._defaults, **encoded.values})
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
    return dict.fromkeys(unique.by)


def _details(declared: Declared, call: CallOptions) -> Details:
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
    return options


def tracing() -> bool:
    """Whether OpenTelemetry is in use in this process."""
    return "opentelemetry.trace" in sys.modules


def _trace_id() -> str | None:
    """Return the id of the current trace if OpenTelemetry is in use; this function never imports it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None
