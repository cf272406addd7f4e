"""Joining of calls with batches: many hands report, log and send heartbeats in one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.domain.cluster import Pulse
from tidemill.engine.exchange.result_writer import is_trouble
from tidemill.engine.hub.intake import HandCall, rounds
from tidemill.stores.base import Store


class _Batch(NamedTuple):
    """The argument of a verb that has the batch, and the id of each item."""

    parameter: str
    id_of: Callable[[Any], UUID]


_BATCHES: dict[str, _Batch] = {
    "start": _Batch("claims", lambda claim: claim.id),
    "report": _Batch("reports", lambda report: report.id),
    "log": _Batch("entries", lambda entry: entry.job_id),
    "save_checkpoints": _Batch("entries", lambda entry: entry.job_id),
    "record_steps": _Batch("entries", lambda entry: entry.job_id),
    "write_streams": _Batch("entries", lambda entry: entry.job_id),
    "finish": _Batch("finishes", lambda finish: finish.claim.id),
    "beat": _Batch("ids", lambda id: id),
    "retire": _Batch("ids", lambda id: id),
}


class BatchJoiner:
    """Performs calls whose batches can be joined, and answers them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def serve(self, calls: Sequence[HandCall]) -> None:
        """Perform these calls, in as few calls of the store as possible."""
        alike: dict[tuple[Hashable, ...], list[HandCall]] = defaultdict(list)
        for call in calls:
            batch = _BATCHES[call.verb]
            rest = tuple(
                sorted(
                    (name, value)
                    for name, value in call.args.items()
                    if name not in (batch.parameter, "ages", "reports")
                )
            )
            # Ages and reports belong to the items. Calls with and without ages cannot be joined.
            alike[call.verb, call.args.get("ages") is None, rest].append(call)
        for group in alike.values():
            batch = _BATCHES[group[0].verb]
            for joined in rounds((call, map(batch.id_of, call.args[batch.parameter])) for call in group):
                self._perform(joined, batch)

    def _perform(self, calls: Sequence[HandCall], batch: _Batch) -> None:
        first = calls[0]
        args = dict(first.args)
        args[batch.parameter] = [item for call in calls for item in call.args[batch.parameter]]
        if args.get("ages") is not None:
            args["ages"] = [age for call in calls for age in call.args["ages"]]
        if first.verb == "beat":
            args["reports"] = {id: row for call in calls for id, row in call.args.get("reports", {}).items()}
        try:
            result = getattr(self._store, first.verb)(**args)
        except Exception as error:  # noqa: BLE001  (every error is an answer)
            if len(calls) == 1 or is_trouble(error):
                for call in calls:
                    call.fail(error)
            else:  # one of them is refused, which is no reason to refuse the others
                for call in calls:
                    self._perform([call], batch)
            return
        for call in calls:
            call.reply(_part(result, [batch.id_of(item) for item in call.args[batch.parameter]]))


def _part(result: Any, ids: Collection[UUID]) -> Any:
    """The part of a joined result that concerns these ids."""
    if isinstance(result, Pulse):
        own = frozenset(ids)
        return Pulse(
            result.alive & own,
            result.draining & own,
            [request for request in result.cancels if request.worker in own],
            result.paused & own,
            {id: scale for id, scale in result.scales.items() if id in own},
        )
    return None if result is None else result & frozenset(ids)


def ids_of(items: Iterable[Any], verb: str) -> list[UUID]:
    """The ids of the items of a verb's batch."""
    return [_BATCHES[verb].id_of(item) for item in items]
