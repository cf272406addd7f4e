"""Compensation of steps: jobs that run if the job of the steps ends without success.

Before a step with a compensation runs, one transaction records the intent and inserts a waiting job. Its edge to the job of the step
counts any end but success. The compensation of the step before it waits for its end, so the last one runs first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.domain.graph import Edge, EdgeCondition, NewJoin
from tidemill.domain.job import Claim, NewJob
from tidemill.domain.sealed_values import is_sealed
from tidemill.domain.steps import PREFIX, UNDO_OPTION, note_record, read_note, recorded_value
from tidemill.engine.children import new_jobs
from tidemill.engine.step_operations import StepOperation, StepOutlet
from tidemill.engine.steps import StepLog, Talk
from tidemill.engine.suspension import LEASE_LOST, records_of
from tidemill.errors import Cancel
from tidemill.stores.base import Store
from tidemill.tasks.secret_values import open_result, seal_arguments
from tidemill.tasks.steps import RESULT, Undo

UNDO = "@undo/"


class UndoPlan(NamedTuple):
    """A waiting job that compensates a step, and the rows around it."""

    job: NewJob
    edges: tuple[Edge, ...]
    joins: tuple[NewJoin, ...]
    records: Mapping[str, str]


class WriteUndo(StepOperation):
    """Writes the intent and the waiting job of a compensation."""

    def __init__(self, plan: UndoPlan) -> None:
        self._plan = plan

    def run(self, outlet: StepOutlet) -> None:
        write_undo(outlet.flow_store, outlet.claim, self._plan, outlet.store_now())


def intend(log: StepLog, name: str, undo: Undo) -> Talk[None]:
    """Prepare the compensation of a step, unless an earlier execution has done so."""
    records = yield from log.records()
    if UNDO + name in records:
        return
    plan = _plan(log, records, name, undo)
    yield WriteUndo(plan)
    for record_name, record in plan.records.items():
        log.keep(record_name, record)


def _plan(log: StepLog, records: Mapping[str, str], name: str, undo: Undo) -> UndoPlan:
    own = log.claim.id
    unknown = [parameter for parameter, value in undo.arguments.items() if value is RESULT]
    arguments = {key: None if value is RESULT else value for key, value in undo.arguments.items()}
    (job,) = new_jobs(log, undo.task, [arguments])
    options = {**job.details.options, UNDO_OPTION: {"job": str(own), "step": name, "parameters": unknown}}
    job = job._replace(
        waiting=f"compensates step {name} if job {own} does not succeed",
        details=replace(job.details, options=options),
    )
    notes = [read_note(record) for entry, record in records.items() if entry.startswith(UNDO)]
    edges = [Edge(job.id, own, EdgeCondition.NOT_SUCCESS)]
    joins = [NewJoin(job.id, 0, 1, 0, 1)]
    if notes:
        before = UUID(max(notes, key=lambda note: note["number"])["job"])
        edges.append(Edge(before, job.id, EdgeCondition.END))
        joins.append(NewJoin(before, 0, 1, 0, 1))
    intent = {UNDO + name: note_record("undo", job=str(job.id), number=len(notes) + 1)}
    return UndoPlan(job, tuple(edges), tuple(joins), intent)


def write_undo(store: Store, claim: Claim, plan: UndoPlan, now: datetime | None = None) -> None:
    """Write a compensation, all or nothing. Raises ``Cancel`` if the worker no longer holds the job of the step."""
    with store.transaction():
        if store.record_steps(records_of(claim, plan.records), now=now):
            raise Cancel(LEASE_LOST)
        store.enqueue([plan.job], now=now)
        store.attach(plan.edges, plan.joins, tenant=claim.tenant, now=now)


def with_result(
    store: Store, claim: Claim, options: Mapping[str, Any], secrets: Collection[str], args: str
) -> str:
    """The arguments of a compensation with the recorded result of its step; unchanged for any other job.

    A secret result is sealed for the job of the step, and a secret parameter for this one.
    """
    undo = options.get(UNDO_OPTION)
    if not isinstance(undo, Mapping) or not undo["parameters"]:
        return args
    job, field, names = UUID(undo["job"]), PREFIX + undo["step"], undo["parameters"]
    record = store.checkpoints(job, tenant=claim.tenant).get(field)
    value = None if record is None else recorded_value(record)
    if value is None:
        return args
    if is_sealed(json.loads(value)):
        value = open_result(value, job, field)
    text = json.dumps({**json.loads(args), **dict.fromkeys(names, json.loads(value))})
    hidden = [name for name in names if name in secrets]
    return seal_arguments(text, hidden, claim.id) if hidden else text
