"""The jobs of a map over a list that is known only when the flow runs.

A job of the built-in task ``tidemill.fan_out`` receives the list and creates one job per item, written with its own finish.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.graph import Additions, grown_joins, grown_shard
from tidemill.domain.job import Details, NewJob
from tidemill.domain.references import INPUTS, encode

FAN_OUT = "tidemill.fan_out"
"""The name of the built-in task. Every worker knows it."""

STOP_FLOW = "tidemill.stop_flow"
"""The built-in task that stops a flow with ``on_failure="stop"`` at its first failure."""


def template_to_data(job: NewJob) -> dict[str, object]:
    """The properties that all jobs of a map share, as JSON."""
    details = job.details
    return {
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "timeout": None if job.timeout is None else job.timeout.total_seconds(),
        "limits": list(job.limits),
        "tags": list(details.tags),
        "metadata": dict(details.metadata),
        "headers": dict(details.headers),
        "options": dict(details.options),
        "reference": None if details.reference is None else list(details.reference),
        "may_fail": details.may_fail,
    }


def template_from_data(data: Mapping[str, Any], id: UUID, args: str) -> NewJob:
    """One job of a map."""
    timeout, reference = data["timeout"], data["reference"]
    return NewJob(
        id=id,
        task=data["task"],
        args=args,
        queue=data["queue"],
        priority=data["priority"],
        max_attempts=data["max_attempts"],
        timeout=None if timeout is None else timedelta(seconds=timeout),
        limits=tuple(data["limits"]),
        details=Details(
            tags=tuple(data["tags"]),
            metadata=data["metadata"],
            headers=data["headers"],
            options=data["options"],
            reference=None if reference is None else (reference[0], reference[1]),
            may_fail=data["may_fail"],
        ),
    )


def fanned_out(
    items: Sequence[object],
    *,
    into: str,
    args: str,
    template: Mapping[str, Any],
    ids: Sequence[UUID],
    tenant: str,
    details: Details,
) -> Additions:
    """The jobs for these items, as members of the group that the running job belongs to.

    ``args`` is the JSON of the other arguments, with references; ``details`` are those of the running job.
    """
    others = json.loads(args)
    group = details.group_id
    assert group is not None  # the plan of a flow makes it a member
    base = template_from_data(template, ids[0] if ids else group, "{}")
    has_references = INPUTS in base.details.options
    common = replace(
        base.details,
        correlation_id=details.correlation_id,
        flow_id=details.flow_id,
        node=details.node,
        group_id=group,
        parent_id=None,
        # The template is older than a call of may_fail() on the node.
        may_fail=base.details.may_fail or details.may_fail,
    )
    jobs = []
    for position, (id, item) in enumerate(zip(ids, items, strict=True)):
        value = encode(item)[0] if has_references else item
        jobs.append(
            base._replace(
                id=id,
                tenant=tenant,
                args=json.dumps({into: value, **others}, separators=(",", ":"), ensure_ascii=False),
                details=replace(common, position=position, group_shard=grown_shard(position)),
                tied=True,
            )
        )
    return Additions(jobs=tuple(jobs), joins=tuple(grown_joins(group, 0, len(jobs))))
