"""The start of a flow: hooks and limits for its jobs, and one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.client.access import who
from tidemill.client.enqueue.writes import wake
from tidemill.client.flows.run import FlowRun
from tidemill.domain.flow_plan import FlowPlan
from tidemill.domain.graph import FlowRow, FlowState, GroupKind, Started
from tidemill.domain.job import NewJob
from tidemill.domain.limits import Rule
from tidemill.domain.records import AuditEntry
from tidemill.errors import UsageError
from tidemill.stores.base import Store
from tidemill.stores.large_values import store_job_value, stored_job

if TYPE_CHECKING:
    from tidemill.client.core import Client

Ready = tuple[FlowPlan, Sequence[Rule]]


def start(client: Client, ready: Ready, connection: object) -> FlowRun:
    """Store a flow, or find the one with the same key."""
    name = client.place_of(ready[0].groups[0].tenant)
    store = client.store(name)
    if connection is not None:
        from tidemill.client.own_connection import look_on, start_on

        look_on(connection, store)
        made = prepared(client, ready, store)
        started = start_on(connection, store, made, [_entry(made)], now=client.pin)
        return _run(client, name, made, started)
    made = prepared(client, ready, store)
    with store.transaction():
        jobs = [stored_job(store, job) for job in made.jobs]
        started = store.start_flow(made.groups, jobs, made.edges, made.joins, now=client.pin)
        if started.created:
            for job in made.jobs:
                store_job_value(store, job, now=client.pin)
            store.record([_entry(made)], now=client.pin)
    if started.created:
        _announce(client, store, made.jobs)
    return _run(client, name, made, started)


async def astart(client: Client, ready: Ready, connection: object) -> FlowRun:
    """Async twin of ``start``."""
    if connection is None:
        run: FlowRun = await client.in_thread(start, client, ready, None)
        return run
    from tidemill.client.own_connection import alook_on, astart_on

    name = client.place_of(ready[0].groups[0].tenant)
    store = client.store(name)
    await alook_on(connection, store)
    made: FlowPlan = await client.in_thread(prepared, client, ready, store)
    started = await astart_on(connection, store, made, [_entry(made)], now=client.pin)
    return _run(client, name, made, started)


def prepared(client: Client, ready: Ready, store: Store) -> FlowPlan:
    """The rows of the start after hooks and limits."""
    made, rules = ready
    # Only new rules are written: on SQLite the user's transaction may hold the lock.
    new = {rule.name for rule in rules} - {rule.name for rule in store.rules()} if rules else set()
    if new and store.put_rules([rule for rule in rules if rule.name in new]):
        store.notify(["change"])
        client.enqueuer.forget_limits()
    by_task: dict[str, list[NewJob]] = {}
    for job in made.jobs:
        by_task.setdefault(job.task, []).append(job)
    changed: dict[UUID, NewJob] = {}
    for task, jobs in by_task.items():
        if task in client.registry:
            jobs = client.enqueuer.admitted(client.registry.get(task), jobs)  # noqa: PLW2901
        changed |= {job.id: job for job in client.hooks.pass_through(jobs)}
    return made._replace(jobs=[changed[job.id] for job in made.jobs])


def _announce(client: Client, store: Store, jobs: Sequence[NewJob]) -> None:
    client.enqueuer.publish(jobs)
    wake(store, [job for job in jobs if job.waiting is None])


def _entry(made: FlowPlan) -> AuditEntry:
    group = made.groups[0]
    after = {"name": group.name, "key": group.key, "jobs": len(made.jobs)}
    return AuditEntry(who(), f"{group.kind}.started", f"{group.kind}:{group.id}", group.tenant, None, after)


def _run(client: Client, store: str, made: FlowPlan, started: Started) -> FlowRun:
    group = made.groups[0]
    if not started.created:
        found = client.store(store).flow([started.id], tenant=group.tenant)
        if found:
            return FlowRun(client, found[0], store)
    if group.kind is not GroupKind.FLOW:
        raise UsageError(f"{group.name} is not a flow")
    now = client.pin or client.clock.now()
    row = FlowRow(
        started.id,
        group.tenant,
        group.kind,
        group.name,
        group.key,
        FlowState.RUNNING,
        now,
        rules=group.rules,
        created_by=group.created_by,
        expires_at=group.expires_at,
        correlation_id=group.correlation_id,
    )
    return FlowRun(client, row, store)
