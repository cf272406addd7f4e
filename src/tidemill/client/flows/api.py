"""``app.flows``: the flows of a tenant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.archive.flow_reads import find_flow, list_flows
from tidemill.client._base import async_twin
from tidemill.client.flows.run import FlowRun
from tidemill.domain.graph import FlowFilter, FlowState, GroupKind
from tidemill.errors import BadFilter, FlowNotFound
from tidemill.tasks.ambient import current_tenant

if TYPE_CHECKING:
    from tidemill.client.core import Client


class Flows:
    """Find flows that were started."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, id: UUID | str) -> FlowRun:
        """Return the flow with this id, live or archived; raises ``FlowNotFound``."""
        place = self._client.store_name(None)
        found = find_flow(self._client, place, read_id(id), self._tenant)
        if found is None or found.row.kind is not GroupKind.FLOW:
            raise FlowNotFound(f"there is no flow {id}", id=id)
        return FlowRun(self._client, found.row, place, found.archived)

    aget = async_twin(get)

    def list(
        self,
        *,
        name: str | None = None,
        key: str | None = None,
        status: str | FlowState | Iterable[str | FlowState] | None = None,
        limit: int = 100,
        after: UUID | str | None = None,
        archived: bool = False,
    ) -> list[FlowRun]:
        """Return flows, the newest first; ``after`` is the id of the last one of the page before.

        ``archived`` includes those in the archive.
        """
        where = FlowFilter(
            self._tenant, kinds=frozenset({GroupKind.FLOW}), name=name, key=key, states=read_statuses(status)
        )
        place, last = self._client.store_name(None), None if after is None else read_id(after)
        found = list_flows(self._client, place, where, limit=limit, after=last, archived=archived)
        return [FlowRun(self._client, row, place, document) for row, document in found]

    alist = async_twin(list)  # noqa: A003  (the method above)

    def __iter__(self) -> Iterator[FlowRun]:
        after: UUID | None = None
        while page := self.list(after=after, limit=500):
            yield from page
            after = page[-1].id

    @property
    def _tenant(self) -> str:
        return current_tenant() or self._client.tenant


def read_statuses(status: str | FlowState | Iterable[str | FlowState] | None) -> frozenset[FlowState]:
    """The statuses of a filter; empty for any."""
    if status is None:
        return frozenset()
    given = [status] if isinstance(status, str) else [*status]
    known = {item.value for item in FlowState}
    for item in given:
        if item not in known:
            raise BadFilter(
                f"unknown status {item!r}; expected one of {', '.join(sorted(known))}", status=item
            )
    return frozenset(FlowState(item) for item in given)


def read_id(id: UUID | str, kind: str = "flow") -> UUID:
    """Return an id that may be text; raises ``FlowNotFound`` for text that is no id."""
    if isinstance(id, UUID):
        return id
    try:
        return UUID(id)
    except ValueError:
        raise FlowNotFound(f"there is no {kind} {id}", id=id) from None
