"""Rows with sealed values in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from tidemill.domain.large_values import is_reference
from tidemill.domain.sealed_values import SEALED, SealChange, SealedPlace, SealedRow
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import State
from tidemill.stores.seals import SealStore


class MemorySeals(MemoryPart, SealStore):
    """sealed_rows, reseal."""

    def sealed_rows(self, place: SealedPlace, after: tuple[UUID, str] | None, limit: int) -> list[SealedRow]:
        with self._open() as state:
            rows = sorted(_rows(state, place), key=lambda row: row.cursor)
            return [row for row in rows if after is None or row.cursor > after][:limit]

    def reseal(self, changes: Sequence[SealChange]) -> int:
        with self._open() as state:
            return sum(_changed(state, change) for change in changes)


def part_of(job_state: JobState) -> str:
    """The table in which a SQL store has a job of this state."""
    if job_state in ENDED:
        return "history"
    if job_state in HELD:
        return "running"
    return {JobState.PENDING: "ready", JobState.SCHEDULED: "scheduled"}.get(job_state, "parked")


def _sealed(text: str | None) -> str | None:
    return text if text is not None and (SEALED in text or is_reference(text)) else None


def _rows(state: State, place: SealedPlace) -> Iterator[SealedRow]:
    match place:
        case "jobs":
            for job in state.jobs.values():
                yield SealedRow(
                    place, job.id, "", part_of(job.state), job.queue, _sealed(job.args), _sealed(job.result)
                )
        case "checkpoints":
            for id, named in state.checkpoints.items():
                for name, value in named.items():
                    yield SealedRow(place, id, name, "", "", _sealed(value))
        case "definitions":
            for definition in state.definitions.values():
                yield SealedRow(place, definition.id, "", "", "", _sealed(definition.args))
        case "definition_versions":
            for id, versions in state.versions.items():
                for version in versions:
                    args = version.definition.args
                    body = None if _sealed(args) is None else _body(args)
                    yield SealedRow(place, id, f"{version.definition.version:09d}", "", "", body)


def _body(args: str) -> str:
    return f'{{"args": {args}}}'


def _changed(state: State, change: SealChange) -> bool:
    row = change.row
    match row.place:
        case "jobs":
            job = state.jobs.get(row.id)
            if job is None or part_of(job.state) != row.part or getattr(job, change.column) != change.old:
                return False
            state.jobs[row.id] = (
                replace(job, args=change.new) if change.column == "args" else replace(job, result=change.new)
            )
        case "checkpoints":
            named = state.checkpoints.get(row.id, {})
            if named.get(row.name) != change.old:
                return False
            state.checkpoints[row.id] = {**named, row.name: change.new}
        case "definitions":
            definition = state.definitions.get(row.id)
            if definition is None or definition.args != change.old:
                return False
            state.definitions[row.id] = replace(definition, args=change.new)
        case "definition_versions":
            return _changed_version(state, change)
    return True


def _changed_version(state: State, change: SealChange) -> bool:
    versions = state.versions.get(change.row.id, [])
    for at, version in enumerate(versions):
        if (
            version.definition.version == int(change.row.name)
            and _body(version.definition.args) == change.old
        ):
            new = change.new.removeprefix('{"args": ').removesuffix("}")
            definition = replace(version.definition, args=new)
            state.versions[change.row.id] = [
                *versions[:at],
                version._replace(definition=definition),
                *versions[at + 1 :],
            ]
            return True
    return False
