"""Tasks that only other processes declare, built from the records that workers store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

from tidemill.domain.job_requests import unique_to_data
from tidemill.domain.json_schema import schema_problems
from tidemill.domain.task_records import TaskRecord
from tidemill.domain.unique import Unique
from tidemill.errors import BadArguments, TaskNotFound
from tidemill.tasks.codec import ArgumentsCodec, Encoded
from tidemill.tasks.options import TaskOptions, read_options
from tidemill.tasks.signature import Fault, Parameter, Signature
from tidemill.tasks.task import Declared, declare

RECORDED = ("queue", "priority", "tags", "orphans", "record")
"""Options that a record contains as they are."""


class RecordedArguments(ArgumentsCodec):
    """Codec for the arguments of a task of which only the record is known. It checks values by their JSON schemas."""

    __slots__ = ("_record",)

    def __init__(self, record: TaskRecord) -> None:
        super().__init__(record.name, _signature(record))
        self._record = record

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Encoded:
        """Encode a call's arguments. A ``BadArguments`` error names all invalid ones."""
        encoded = super().dump(args, kwargs)
        faults = list(self._faults(encoded.values))
        if faults:
            shown = "; ".join(f"{fault.field}: {fault.message}" for fault in faults)
            raise BadArguments(
                f"task {self.task}: {shown}; workers have declared the task so",
                task=self.task,
                errors=[fault._asdict() for fault in faults],
            )
        return encoded

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema that a worker has declared."""
        return {**self._record.schema}

    def _faults(self, values: Mapping[str, Any]) -> list[Fault]:
        faults = []
        for problem in schema_problems(self._record.schema, values):
            field, _, message = problem.partition(": ")
            faults.append(Fault(field, message))
        return faults


def _signature(record: TaskRecord) -> Signature:
    parameters = tuple(
        Parameter(
            name,
            Any,
            name in record.required,
            schema.get("default"),
            is_secret=name in record.secrets,
        )
        for name, schema in record.arguments.items()
    )
    extra = Parameter("arguments", Any, required=False) if record.takes_more else None
    return Signature(parameters, extra=extra)


def declared_elsewhere(record: TaskRecord) -> Declared:
    """Return a task that this process knows by its record only. It can be enqueued here, and cannot run."""

    def unknown(**_arguments: Any) -> NoReturn:
        raise TaskNotFound(
            f"task {record.name!r} is declared by other processes, and this one cannot run it",
            name=record.name,
        )

    made = declare(unknown, _options(record))
    options = replace(made.options, unique=_unique(record.settings.get("unique")))
    return replace(made, options=options, arguments=RecordedArguments(record), recorded=record.settings)


def _options(record: TaskRecord) -> TaskOptions:
    """The options that jobs get when they are enqueued. Those that matter only to a worker keep their defaults."""
    data = record.settings
    given: dict[str, Any] = {name: data[name] for name in RECORDED if name in data}
    if isinstance(attempts := data.get("max_attempts"), int):
        given["retry"] = attempts
    if "timeout" in data:
        given["timeout"] = None if data["timeout"] is None else timedelta(seconds=float(data["timeout"]))
    return read_options(record.name, given)


def _unique(data: Any) -> Unique | None:
    if not isinstance(data, Mapping):
        return None
    within = data.get("within")
    return Unique(
        by=tuple(data.get("by") or ()),
        within=None if within is None else timedelta(seconds=float(within)),
        states=data["states"],
        on_conflict=data["on_conflict"],
        failed=data["failed"],
    )


def record_of(declared: Declared, name: str, deployed_at: datetime) -> TaskRecord:
    """Return the record of a task that this process declares, under its name or an alias."""
    settings: dict[str, Any] = {**declared.data, "record": declared.options.record.value}
    if (unique := declared.options.unique) is not None:
        settings["unique"] = {
            **unique_to_data(unique),
            "on_conflict": unique.on_conflict,
            "failed": unique.failed,
        }
    return TaskRecord(
        name,
        # As the store returns it, so that an unchanged record is recognized.
        json.loads(json.dumps(declared.arguments.declared_schema())),
        json.loads(json.dumps(settings)),
        declared.summary,
        declared.options.owner,
        deployed_at,
    )
