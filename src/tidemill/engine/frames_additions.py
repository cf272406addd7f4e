"""Encoding of the rows that a child process adds to the finish of its job."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tidemill.domain.graph import (
    Additions,
    Edge,
    EdgeCondition,
    GroupKind,
    NewGroup,
    NewJoin,
    StepRecord,
    Wait,
)
from tidemill.engine.frames import Data, id_from_data, id_to_data, instant_from_data, instant_to_data
from tidemill.engine.frames_follow_ups import job_from_data, job_to_data


def additions_to_data(additions: Additions | None) -> Data:
    """Encode the additions as part of a message; empty if there are none, as for most executions."""
    if additions is None:
        return {}
    return {
        "additions": {
            "jobs": [job_to_data(job) for job in additions.jobs],
            "edges": [
                [str(edge.job_id), str(edge.needs_id), edge.condition.value, edge.shard]
                for edge in additions.edges
            ],
            "joins": [[str(join.id), *join[1:]] for join in additions.joins],
            "groups": [_group_to_data(group) for group in additions.groups],
            "records": [
                [str(record.job_id), record.number, id_to_data(record.worker), *record[3:]]
                for record in additions.records
            ],
            "waits": [
                [wait.name, wait.match, wait.event, instant_to_data(wait.since)] for wait in additions.waits
            ],
        }
    }


def additions_from_data(message: Data) -> Additions | None:
    """Decode the additions of a message."""
    data = message.get("additions")
    if data is None:
        return None
    return Additions(
        tuple(job_from_data(job) for job in data["jobs"]),
        tuple(
            Edge(UUID(job), UUID(needs), EdgeCondition(condition), shard)
            for job, needs, condition, shard in data["edges"]
        ),
        tuple(NewJoin(UUID(id), *rest) for id, *rest in data["joins"]),
        tuple(_group_from_data(group) for group in data["groups"]),
        tuple(
            StepRecord(UUID(job), number, id_from_data(worker), *rest)
            for job, number, worker, *rest in data["records"]
        ),
        tuple(
            Wait(name, match, event, instant_from_data(since)) for name, match, event, since in data["waits"]
        ),
    )


def _group_to_data(group: NewGroup) -> Data:
    fields: dict[str, Any] = {name: getattr(group, name) for name in NewGroup.__dataclass_fields__}
    return fields | {
        "id": str(group.id),
        "kind": group.kind.value,
        "group_id": id_to_data(group.group_id),
        "rules": dict(group.rules),
        "expires_at": instant_to_data(group.expires_at),
    }


def _group_from_data(data: Data) -> NewGroup:
    changed = {
        "id": UUID(data["id"]),
        "kind": GroupKind(data["kind"]),
        "group_id": id_from_data(data["group_id"]),
        "expires_at": instant_from_data(data["expires_at"]),
    }
    return NewGroup(**data | changed)
