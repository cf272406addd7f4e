"""The write paths of flows, signals and events."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.faults.job_paths import claimed_jobs, nothing, some_jobs
from tests.faults.write_paths import LARGE, path

from tidemill.domain.archived_flows import ArchivedFlow, FlowParts, archived_flow
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import (
    Additions,
    Edge,
    GroupKind,
    NewGroup,
    StepRecord,
    Wait,
    group_joins,
    grown_joins,
    job_joins,
)
from tidemill.domain.job import Claim, Details, Finish, Move
from tidemill.domain.retention import Selection, Selector
from tidemill.domain.signals import EmittedEvent, NewSignal, SignalFence
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import SECOND, SUSPENDED, T0, a_job, at, put_one

# Signals and events ------------------------------------------------------------------------------------------------------

path(
    "post signals",
    "post_signals",
    some_jobs,
    lambda store, ids: store.post_signals(
        [NewSignal(id, "default", "go", key="once", payload="1") for id in ids], now=T0
    ),
)


def signalled_job(store: Store) -> Claim:
    """Claim a job that has an unread signal."""
    (claim,) = claimed_jobs(store, 1)
    store.post_signals([NewSignal(claim.id, "default", "go", "1", "once")], now=T0)
    return claim


def receiver(store: Store) -> Claim:
    """Suspend a job that waits for a signal, and send the signal."""
    claim = signalled_job(store)
    store.finish([Finish(claim, SUSPENDED, additions=Additions(waits=(Wait("go"),)))], now=T0)
    return claim


def job_without_its_signal(store: Store) -> UUID:
    """Suspend a job that waits for a signal that was not sent."""
    (claim,) = claimed_jobs(store, 1)
    store.finish([Finish(claim, SUSPENDED, additions=Additions(waits=(Wait("go"),)))], now=T0)
    return claim.id


path(
    "deliver a signal",
    "deliver_signal",
    job_without_its_signal,
    lambda store, id: store.deliver_signal(NewSignal(id, "default", "go", key="once", payload="1"), now=T0),
)
path(
    "take signal",
    "take_signal",
    signalled_job,
    lambda store, claim: store.take_signal(
        SignalFence(claim.id, claim.token, claim.worker), ["go"], "step/go", now=T0
    ),
    fenced=True,
)
path(
    "suspend",
    "finish",
    signalled_job,
    lambda store, claim: store.finish(
        [Finish(claim, SUSPENDED, additions=Additions(waits=(Wait("go"),)))], now=T0
    ),
    fenced=True,
)
path(
    "wake receivers",
    "wake_receivers",
    receiver,
    lambda store, claim: store.wake_receivers([claim.id], now=T0),
)
path(
    "emit",
    "emit",
    nothing,
    lambda store, _: store.emit([EmittedEvent(LARGE.job_id, "default", "paid")], now=T0),
)
path(
    "drop events",
    "drop_events",
    lambda store: (store.emit([EmittedEvent(LARGE.job_id, "default", "paid")], now=T0), None)[1],
    lambda store, _: store.drop_events(SECOND, limit=10, now=at(9)),
)


# Flows -------------------------------------------------------------------------------------------------------------------

FLOW = UUID("0197a000-0000-7000-8000-0000000000f0")
MEMBER = UUID("0197a000-0000-7000-8000-0000000000f1")


def start_flow(store: Store, held: int = 0) -> UUID:
    """Start a flow with one member."""
    new = a_job(id=MEMBER, details=Details(flow_id=FLOW, group_id=FLOW, group_shard=0))
    group = NewGroup(FLOW, "default", GroupKind.BATCH, "f", key="k", held=held)
    store.start_flow([group], [new], [], group_joins(FLOW, 1, held=held), now=T0)
    return FLOW


def ended_flow(store: Store) -> UUID:
    """Start a flow whose only member has failed."""
    start_flow(store)
    store.move([Move(MEMBER, "default", frozenset({JobState.PENDING}), JobState.CANCELLED)], now=T0)
    return FLOW


def empty_flow(store: Store) -> UUID:
    """Start a flow of which no job is left."""
    ended_flow(store)
    store.delete([MEMBER], tenant=ALL_TENANTS)
    return FLOW


def waiting_job(store: Store) -> tuple[UUID, UUID]:
    """Enqueue a job, and one that waits."""
    return put_one(store), put_one(store, waiting="need")


def wrong_join(store: Store) -> UUID:
    """A job whose need has ended, with a counter row that lacks this end, as after a worker that does not count."""
    need, waits = waiting_job(store)
    store.attach([Edge(waits, need)], job_joins(waits, 1), tenant="default", now=T0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "_count_ends", lambda *_: None)
        store.move([Move(need, "default", frozenset({JobState.PENDING}), JobState.COMPLETED)], now=T0)
    (job,) = store.get([waits], tenant=ALL_TENANTS)
    assert job.state is JobState.WAITING
    return waits


def needed_job(store: Store) -> Claim:
    """Claim a job that another one waits for."""
    (claim,) = claimed_jobs(store, 1)
    waits = put_one(store, waiting="need")
    store.attach([Edge(waits, claim.id)], job_joins(waits, 1), tenant="default", now=T0)
    return claim


def adding(claim: Claim) -> Finish:
    """A completion that writes a record and a new job that waits for another new one."""
    after = UUID("0197a000-0000-7000-8000-00000000000e")
    jobs = a_job(id=LARGE.job_id), a_job(id=after, waiting="need")
    record = StepRecord(claim.id, claim.token, claim.worker, "step/x", "1")
    rows = Additions(jobs, (Edge(after, LARGE.job_id),), tuple(job_joins(after, 1)), records=(record,))
    return Finish(claim, COMPLETED, additions=rows)


def unreachable_job(store: Store) -> UUID:
    """A waiting job that can no longer start."""
    need, waits = waiting_job(store)
    store.attach([Edge(waits, need)], job_joins(waits, 1), tenant="default", now=T0)
    store.move([Move(need, "default", frozenset({JobState.PENDING}), JobState.CANCELLED)], now=T0)
    return waits


path("start flow", "start_flow", lambda _: None, lambda store, _: start_flow(store))
path(
    "attach",
    "attach",
    waiting_job,
    lambda store, ids: store.attach([Edge(ids[1], ids[0])], job_joins(ids[1], 1), tenant="default", now=T0),
    repeats="growth is added to the join again",
)
path(
    "grow group",
    "grow_group",
    lambda store: start_flow(store, held=1),
    lambda store, flow: store.grow_group(
        flow,
        [a_job(id=LARGE.job_id, details=Details(group_id=flow, group_shard=1))],
        grown_joins(flow, 0, 1),
        tenant="default",
        now=T0,
    ),
)
path(
    "change flow",
    "change_flow",
    lambda store: start_flow(store, held=1),
    lambda store, flow: store.change_flow(flow, tenant="default", cancel_reason="x", release=True, now=T0),
)
path(
    "reopen",
    "reopen",
    ended_flow,
    lambda store, flow: store.reopen(
        flow,
        [Move(MEMBER, "default", frozenset({JobState.CANCELLED}), JobState.WAITING)],
        tenant="default",
        now=T0,
    ),
)
path(
    "finish a node with additions",
    "finish",
    needed_job,
    lambda store, claim: store.finish([adding(claim)], now=at(1)),
    fenced=True,
)
path("recount joins", "recount_joins", wrong_join, lambda store, _: store.recount_joins(now=T0))
path(
    "drop unreachable",
    "drop_unreachable",
    unreachable_job,
    lambda store, id: store.drop_unreachable([id]),
)
path("drop flows", "drop_flows", empty_flow, lambda store, flow: store.drop_flows([flow]))


def flow_to_archive(store: Store) -> ArchivedFlow:
    """The document of an ended flow."""
    (row,) = store.flow([empty_flow(store)], tenant="default")
    return archived_flow(row, FlowParts(), tier="warm", policy="p")


def archived_one(store: Store) -> ArchivedFlow:
    """An archived flow."""
    document = flow_to_archive(store)
    store.put_archived_flow(document, now=T0)
    return document


path(
    "archive the document of a flow",
    "put_archived_flow",
    flow_to_archive,
    lambda store, document: store.put_archived_flow(document, now=T0),
)
path(
    "move archived flows",
    "move_archived_flows",
    archived_one,
    lambda store, _: store.move_archived_flows(Selection(Selector(), "warm"), tier="cold", policy="q"),
)
path(
    "erase archived flows",
    "erase_archived_flows",
    archived_one,
    lambda store, document: store.erase_archived_flows(document.tenant),
)
