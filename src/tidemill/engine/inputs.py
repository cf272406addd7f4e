"""Results of other nodes in the arguments and conditions of a job, read when it begins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from tidemill.domain.conditions import evaluate
from tidemill.domain.flow_states import SKIP_REASON
from tidemill.domain.graph import FlowRow, GroupKind
from tidemill.domain.job import JobRow
from tidemill.domain.large_values import PREFIX
from tidemill.domain.node_results import NO_RESULTS, NodeResult
from tidemill.domain.references import (
    INPUTS,
    WHEN,
    MissingPath,
    StoredReference,
    decode,
    look_up,
    read_stored,
    stored_references,
)
from tidemill.domain.states import JobState
from tidemill.errors import Cancel, PermanentError
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value

MOST_INPUT = 4 * 1024 * 1024
"""Bytes of results that one job may take as arguments."""
_PAGE = 1_000


def takes_inputs(options: Mapping[str, object]) -> bool:
    """Whether a job with these options needs results of others before it begins."""
    return INPUTS in options or WHEN in options


def are_read(options: Mapping[str, Any], read_ahead: Mapping[UUID, NodeResult]) -> bool:
    """Whether all results that a job takes have been read with its details."""
    found = [read_ahead.get(UUID(id)) for id in options.get(INPUTS, ())]
    return all(job is not None and not (job.result or "").startswith(PREFIX) for job in found)


class Inputs:
    """The results that one job takes, read together."""

    def __init__(
        self,
        store: Store,
        tenant: str,
        options: Mapping[str, Any],
        read_ahead: Mapping[UUID, NodeResult] = NO_RESULTS,
    ) -> None:
        self._store, self._tenant = store, tenant
        self._options = options
        self._size = 0
        self._values: dict[UUID, Any] = {}
        self._names: dict[UUID, str] = {}
        ids = [UUID(id) for id in options.get(INPUTS, ())]
        self._jobs = {id: read_ahead[id] for id in ids if id in read_ahead}
        unread = [id for id in ids if id not in read_ahead]
        if unread:
            self._jobs |= {job.id: _node_result(job) for job in store.get(unread, tenant=tenant)}
        missing = [id for id in unread if id not in self._jobs]
        self._groups = {row.id: row for row in store.flow(missing, tenant=tenant)} if missing else {}

    def check_condition(self) -> None:
        """Raise ``Cancel`` if the job has a condition that does not hold."""
        condition = self._options.get(WHEN)
        if condition is None:
            return

        def read(operand: Any) -> Any:
            stored = read_stored(operand)
            if stored is None:
                return operand
            try:
                return self._read(stored)
            except MissingPath:
                return None

        if not evaluate(condition["test"], read):
            raise Cancel(f"{SKIP_REASON}{condition['text']} is false")

    def arguments(self, text: str) -> str:
        """The arguments as JSON, with results in the place of references. A missing part of a result is a permanent error."""
        if INPUTS not in self._options:
            return text

        def read(stored: StoredReference) -> Any:
            try:
                return self._read(stored)
            except MissingPath as error:
                path = "".join(f"[{part!r}]" for part in stored.path)
                raise PermanentError(
                    f"it takes {self.name_of(stored.id)}.result{path}, and {error}"
                ) from None

        return json.dumps(decode(json.loads(text), read), separators=(",", ":"), ensure_ascii=False)

    def producers(self, text: str, argument: str) -> list[str]:
        """The names of the nodes whose results an argument contains."""
        found = stored_references(json.loads(text).get(argument))
        return list(dict.fromkeys(self.name_of(stored.id) for stored in found))

    def name_of(self, id: UUID) -> str:
        """The name of a node."""
        if id in self._jobs:
            return self._jobs[id].name
        return self._groups[id].name if id in self._groups else str(id)

    def _read(self, stored: StoredReference) -> Any:
        if stored.id not in self._values:
            self._values[stored.id] = self._value(stored.id)
        value = self._values[stored.id]
        # A node that has no result hands over None, whatever part of it was wanted.
        return None if value is None else look_up(value, stored.path)

    def _value(self, id: UUID) -> Any:
        if id in self._jobs:
            return self._result(self._jobs[id])
        group = self._groups.get(id)
        if group is None:
            return None
        if group.kind is GroupKind.BATCH:
            return group_data(self._store, group)
        return [self._result(member) for member in _group_results(self._store, id, self._tenant)]

    def _result(self, job: NodeResult) -> Any:
        if job.state is not JobState.COMPLETED or job.result is None:
            return None
        text = read_value(self._store, job.result)
        self._size += len(text)
        if self._size > MOST_INPUT:
            raise PermanentError(
                f"it takes more than {MOST_INPUT:,} bytes of results; read them page by page with ctx.results(…)"
            )
        return json.loads(text)


def _node_result(job: JobRow) -> NodeResult:
    details = job.details
    return NodeResult(job.id, job.task, details.node, details.position, job.state, job.result)


def _group_results(store: Store, group: UUID, tenant: str) -> Iterator[NodeResult]:
    after = -1
    while page := store.group_results(group, tenant=tenant, after=after, limit=_PAGE):
        yield from page
        after = page[-1].position or 0
        if len(page) < _PAGE:
            return


def members(store: Store, group: UUID, tenant: str) -> Iterator[JobRow]:
    """The jobs of a map or batch, in the order of their positions."""
    after = -1
    while page := store.group_jobs(group, tenant=tenant, after=after, limit=_PAGE):
        yield from page
        after = page[-1].details.position or 0
        if len(page) < _PAGE:
            return


def group_data(store: Store, group: FlowRow) -> dict[str, object]:
    """A batch as its callbacks receive it."""
    (counts,) = store.group_counts([group.id])
    return {
        "id": str(group.id),
        "name": group.name,
        "status": group.state.value,
        "total": counts.total,
        "pending": counts.remaining,
        "failed": counts.bad,
        "description": group.rules.get("description"),
    }
