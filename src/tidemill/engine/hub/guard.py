"""Permissions of hands: their own workers, and the tenant of their key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.hand_ids import is_hand_of
from tidemill.domain.job import Finish, NewJob
from tidemill.engine.hub.keys import Caller
from tidemill.stores.base import Store
from tidemill.stores.hub.protocol import FENCED, OF_A_TENANT, HubRefusal

LONGEST_LEASE = timedelta(hours=1)
"""A hand that asks for a longer lease is refused: other workers would wait that long for its jobs."""

_MOST_TOPICS = 1_000

Args = dict[str, Any]

_WORKERS: dict[str, Callable[[Args], Iterable[UUID | None]]] = {
    "start": lambda args: [claim.worker for claim in args["claims"]],
    "redate": lambda args: [claim.worker for claim in args["claims"]],
    "report": lambda args: [report.worker for report in args["reports"]],
    "log": lambda args: [entry.worker for entry in args["entries"]],
    "save_checkpoints": lambda args: [entry.worker for entry in args["entries"]],
    "record_steps": lambda args: [entry.worker for entry in args["entries"]],
    "write_streams": lambda args: [entry.worker for entry in args["entries"]],
    "finish": lambda args: _finishers(args["finishes"]),
    "step": lambda args: [*_finishers(args["finishes"]), args["request"].worker],
    "ask": lambda args: [*_finishers(args["finishes"]), args["worker"]],
    "claim": lambda args: [args["request"].worker],
    "take_signal": lambda args: [args["fence"].worker],
    "register": lambda args: [args["worker"].id],
    "beat": lambda args: args["ids"],
    "retire": lambda args: args["ids"],
    "held": lambda args: [args["worker"]],
}
"""The workers that a call names."""


class HandGuard:
    """Checks the arguments of a call. ``pins_time`` refuses calls that bring their own time."""

    def __init__(self, store: Store, *, pins_time: bool = True) -> None:
        self._store, self._pins_time = store, pins_time

    def check(self, caller: Caller, verb: str, args: Args) -> Args:
        """The arguments, restricted to the caller's tenant. Raises ``HubRefusal`` if the call is not allowed."""
        if self._pins_time and args.get("now") is not None:
            raise HubRefusal("the hub's database tells the time")
        if verb in FENCED or verb == "ask":
            self._check_workers(caller, _WORKERS[verb](args))
        lease = args.get("lease")
        if lease is not None and lease > LONGEST_LEASE and self._pins_time:
            raise HubRefusal(f"a lease of {lease} is too long; the longest is {LONGEST_LEASE}")
        if verb == "notify" and len(list(args["topics"])) > _MOST_TOPICS:
            raise HubRefusal(f"one call may notify at most {_MOST_TOPICS} topics")
        return args if caller.tenant == ALL_TENANTS else self._within_tenant(caller, verb, args)

    def _check_workers(self, caller: Caller, workers: Iterable[UUID | None]) -> None:
        for worker in set(workers):
            if worker is None or not is_hand_of(worker, caller.key_hash):
                raise HubRefusal(f"worker {worker} does not belong to this key")

    def _within_tenant(self, caller: Caller, verb: str, args: Args) -> Args:
        tenant = caller.tenant
        if verb in OF_A_TENANT or args.get("tenant") is not None:
            if args.get("tenant") not in (tenant, ALL_TENANTS):
                raise _foreign(tenant)
            return args | {"tenant": tenant}
        tenants: Iterable[str | None] = ()
        match verb:
            case "enqueue":
                args = args | {"jobs": list(args["jobs"])}
                self._check_jobs(caller, args["jobs"])
            case "finish" | "step" | "ask":
                tenants = list(self._written(caller, args["finishes"]))
            case "append_events":
                tenants = [event.tenant for event in args["events"]]
            case "job_starts":
                self._check_known(tenant, args["ids"], self._store.get)
            case "group_counts":
                self._check_known(tenant, args["ids"], self._store.flow)
            case "put_blob" | "blob_parts":
                self._check_known(tenant, [args["key"].job_id], self._store.get)
        if verb in ("claim", "step"):
            tenants = [*tenants, *(lane.tenant for lane in args["request"].lanes)]
        if any(other != tenant for other in tenants):
            raise _foreign(tenant)
        return args

    def _check_jobs(self, caller: Caller, jobs: Iterable[NewJob]) -> None:
        for job in jobs:
            if job.tenant != caller.tenant:
                raise _foreign(caller.tenant)
            caller.identity.check_priority(job.priority)

    def _written(self, caller: Caller, finishes: Iterable[Finish]) -> Iterable[str | None]:
        """The tenants of everything that these finishes write."""
        for item in finishes:
            self._check_jobs(caller, item.then)
            for _, entry in item.audit:
                yield entry.tenant
            if item.additions is not None:
                self._check_jobs(caller, item.additions.jobs)
                yield from (group.tenant for group in item.additions.groups)

    def _check_known(self, tenant: str, ids: Collection[UUID], read: Callable[..., list[Any]]) -> None:
        wanted = set(ids)
        if wanted - {row.id for row in read(wanted, tenant=tenant)}:
            raise _foreign(tenant)


def _finishers(finishes: Iterable[Finish]) -> list[UUID | None]:
    return [item.claim.worker for item in finishes]


def _foreign(tenant: str) -> HubRefusal:
    return HubRefusal(f"the key is for the tenant {tenant} only")
