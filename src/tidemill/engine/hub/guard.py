"""Permissions of hands: their own workers, the tenant of their key, and the tasks of its grants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.callbacks import CALLBACK
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.hand_ids import is_hand_of
from tidemill.domain.job import Finish, JobRow, NewJob
from tidemill.engine.confinement.requests import attributed
from tidemill.engine.hub.keys import Caller
from tidemill.errors import UsageError
from tidemill.stores.base import Store
from tidemill.stores.hub.protocol import FENCED, OF_A_TENANT, HubRefusal

Args = dict[str, Any]

LONGEST_LEASE = timedelta(hours=1)
"""A hand that asks for a longer lease is refused: other workers would wait that long for its jobs."""

_MOST_TOPICS = 1_000

_CLAIMS = frozenset({"claim", "step"})
"""Claims that name lanes and limits themselves. A hand asks instead: the hub knows its grants, the limits and the pauses."""

_READS: dict[str, Callable[[Args], Collection[UUID]]] = {
    "checkpoints": lambda args: [args["id"]],
    "executions": lambda args: args["ids"],
    "job_starts": lambda args: args["ids"],
}
"""Reads of the data of jobs, and the jobs that a call names."""

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
    "register": lambda args: [args["worker"].id, args["worker"].supervisor or args["worker"].id],
    "beat": lambda args: [*args["ids"], *args.get("reports", ())],
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
        self._check_claim(verb)
        if any(item.audit for item in args.get("finishes") or ()):
            args = args | {"finishes": [_attributed(item) for item in args["finishes"]]}
        if verb in FENCED or verb == "ask":
            self._check_workers(caller, _WORKERS[verb](args))
        lease = args.get("lease")
        if lease is not None and lease > LONGEST_LEASE and self._pins_time:
            raise HubRefusal(f"a lease of {lease} is too long; the longest is {LONGEST_LEASE}")
        if verb == "notify" and len(list(args["topics"])) > _MOST_TOPICS:
            raise HubRefusal(f"one call may notify at most {_MOST_TOPICS} topics")
        if caller.tenant != ALL_TENANTS:
            args = self._within_tenant(caller, verb, args)
        return self._within_grants(caller, verb, args) if caller.identity.grants else args

    def shown(self, caller: Caller, verb: str, result: Any) -> Any:
        """The part of a result that the caller's grants include."""
        if verb != "get" or not caller.identity.grants:
            return result
        return [row for row in result if _may_read(caller, row)]

    def _check_claim(self, verb: str) -> None:
        if verb in _CLAIMS:
            raise HubRefusal("a hand asks for jobs, and the hub chooses their lanes")

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
        if verb == "uses" and args.get("names") is None:
            raise HubRefusal("a key of one tenant reads the use of limits by their names only")
        if verb in _CLAIMS:
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

    def _within_grants(self, caller: Caller, verb: str, args: Args) -> Args:
        if verb == "enqueue":
            args = args | {"jobs": list(args["jobs"])}
            _check_enqueued(caller, args["jobs"])
        for item in args.get("finishes") or ():
            _check_enqueued(caller, item.then)
            if item.additions is not None:
                _check_enqueued(caller, item.additions.jobs)
        if verb in _READS:
            rows = self._store.get(set(_READS[verb](args)), tenant=caller.tenant)
            refused = next((row for row in rows if not _may_read(caller, row)), None)
            if refused is not None:
                raise HubRefusal(f"no grant of the key includes jobs of the task {refused.task}")
        return args

    def _check_known(self, tenant: str, ids: Collection[UUID], read: Callable[..., list[Any]]) -> None:
        wanted = set(ids)
        if wanted - {row.id for row in read(wanted, tenant=tenant)}:
            raise _foreign(tenant)


def _may_read(caller: Caller, row: JobRow) -> bool:
    return caller.may_run(row.task) or all(
        caller.may(act, row.task, row.queue) for act in ("jobs.read", "jobs.arguments")
    )


def _check_enqueued(caller: Caller, jobs: Iterable[NewJob]) -> None:
    for job in jobs:
        # The callback of a flow is a request to an address that was checked.
        if not (
            caller.may_run(job.task) or caller.may("jobs.run", job.task, job.queue) or job.task == CALLBACK
        ):
            raise UsageError(
                f"the key of this hand may not enqueue {job.task}; "
                f"create one with the grant: jobs.run task={job.task}"
            )


def _attributed(item: Finish) -> Finish:
    added = () if item.additions is None else item.additions.jobs
    return item._replace(audit=attributed(item.claim, (*item.then, *added), item.audit))


def _finishers(finishes: Iterable[Finish]) -> list[UUID | None]:
    return [item.claim.worker for item in finishes]


def _foreign(tenant: str) -> HubRefusal:
    return HubRefusal(f"the key is for the tenant {tenant} only")
