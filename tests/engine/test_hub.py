"""Tests of hubs and hands over NATS: permissions, joined calls, and wake-ups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.engine.hub_kit import a_far_store, a_hand, a_hub, a_key
from tests.stores.wire_kit import wire_url

from tidemill.app import App
from tidemill.domain.access import Role
from tidemill.domain.cluster import Worker
from tidemill.domain.deals import DealRequest
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Additions
from tidemill.domain.job import Claim, Finish, NewJob
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.records import AuditEntry
from tidemill.domain.states import JobState
from tidemill.engine.hub.server import Hub
from tidemill.errors import (
    BadSettings,
    JobCancelled,
    JobExists,
    PriorityTooHigh,
    StoreUnavailable,
    UsageError,
)
from tidemill.ids import new_id
from tidemill.stores.base import StepResult, Store
from tidemill.stores.hub.store import ANY_LANE, HubStore
from tidemill.stores.memory import MemoryStore

LEASE = timedelta(seconds=30)


@pytest.fixture(scope="module")
def wire() -> Iterator[str]:
    """The URL of a wire over a real NATS server."""
    with wire_url("nats") as url:
        yield url


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    store = MemoryStore()
    yield store
    store.close()


def worker_of(far: HubStore) -> Worker:
    """Register a worker of this hand."""
    return far.register(Worker(far.new_worker_id(), "hand"), lease=LEASE)  # type: ignore[no-any-return]


def ask(far: HubStore, worker: Worker, limit: int = 10, *finishes: Finish) -> StepResult:
    """Ask for jobs as the runner of a hand does."""
    return far.step(finishes, ClaimRequest(worker.id, [ANY_LANE], limit, ["work"]))


@contextmanager
def served(store: Store, wire: str, key: str | None = None) -> Iterator[tuple[Hub, HubStore]]:
    """A hub of this store, and the store of a hand."""
    with a_hub(store, wire) as hub, a_far_store(wire, key or a_key(store)) as far:
        yield hub, far


def test_a_hand_claims_and_finishes_through_a_hub(store: MemoryStore, wire: str) -> None:
    ids = [answer.id for answer in store.enqueue([NewJob(new_id(), "work") for _ in range(3)])]
    with served(store, wire) as (_, far):
        me = worker_of(far)
        first = ask(far, me, 2)
        assert [claim.id for claim in first.claims] == ids[:2]
        assert {claim.worker for claim in first.claims} == {me.id}
        second = ask(far, me, 2, *[Finish(claim, COMPLETED, '"r"') for claim in first.claims])
        assert ([claim.id for claim in second.claims], second.lost) == (ids[2:], frozenset())
        assert [claim.id for claim in far.held(me.id)] == ids[2:]
    assert [job.state for job in store.get(ids[:2], tenant=ALL_TENANTS)] == [JobState.COMPLETED] * 2


def test_only_the_owner_of_a_key_can_use_its_workers(store: MemoryStore, wire: str) -> None:
    store.enqueue([NewJob(new_id(), "work")])
    with a_hub(store, wire), a_far_store(wire, a_key(store)) as far, a_far_store(wire, a_key(store)) as thief:
        me = worker_of(far)
        (claim,) = ask(far, me).claims
        for forged in (
            lambda: thief.finish([Finish(claim, COMPLETED)]),
            lambda: thief.held(me.id),
            lambda: thief.retire([me.id]),
            lambda: thief.beat([me.id], lease=LEASE),
            lambda: ask(thief, me),
            lambda: thief.register(Worker(new_id(), "forged"), lease=LEASE),
        ):
            with pytest.raises(StoreUnavailable, match="does not belong to this key"):
                forged()
        assert far.finish([Finish(claim._replace(token=9), COMPLETED)]) == {claim.id}
        assert far.finish([Finish(claim, COMPLETED)]) == frozenset()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda store: a_key(store)[:-1] + "_", "unknown, expired or revoked"),
        (lambda store: a_key(store, "jobs.read"), "no grant of this identity includes jobs.work"),
        (
            lambda store: a_key(store, "jobs.*,-jobs.arguments"),
            "no grant of this identity includes jobs.work",
        ),
        (lambda store: a_key(store, "*", role=Role.OPERATOR), "requires the role admin"),
        (lambda store: a_key(store, "jobs.work queue=a"), "restricted to tasks"),
    ],
)
def test_a_key_that_may_not_run_jobs_is_refused(
    store: MemoryStore, wire: str, make: object, why: str
) -> None:
    assert callable(make)
    with a_hub(store, wire), a_far_store(wire, make(store)) as far, pytest.raises(BadSettings, match=why):
        far.check()


def test_a_revoked_key_is_refused(store: MemoryStore, wire: str) -> None:
    key = a_key(store)
    store.revoke_keys([key[3:11]])
    with a_hub(store, wire), a_far_store(wire, key) as far:
        with pytest.raises(BadSettings, match="revoked"):
            far.check()
        with pytest.raises(StoreUnavailable, match="revoked"):
            far.now()


def test_a_text_that_is_no_key_is_refused_at_once(wire: str) -> None:
    with pytest.raises(BadSettings, match="tidemill keys create"):
        HubStore.__init__(HubStore.__new__(HubStore), None, "secret")  # type: ignore[arg-type]


def test_a_key_of_one_tenant_gets_and_writes_only_its_jobs(store: MemoryStore, wire: str) -> None:
    mine, theirs = NewJob(new_id(), "work", tenant="acme"), NewJob(new_id(), "work", tenant="other")
    store.enqueue([theirs, mine])
    with served(store, wire, a_key(store, tenant="acme")) as (_, far):
        me = worker_of(far)
        (claim,) = ask(far, me).claims
        assert claim.id == mine.id
        assert [job.id for job in far.get([mine.id, theirs.id], tenant=ALL_TENANTS)] == [mine.id]
        with pytest.raises(StoreUnavailable, match="for the tenant acme only"):
            far.get([theirs.id], tenant="other")
        with pytest.raises(StoreUnavailable, match="for the tenant acme only"):
            far.enqueue([theirs._replace(id=new_id())])
        with pytest.raises(StoreUnavailable, match="for the tenant acme only"):
            far.finish([Finish(claim, COMPLETED, then=(theirs._replace(id=new_id()),))])
        with pytest.raises(StoreUnavailable, match="for the tenant acme only"):
            far.job_starts([theirs.id])
        # The names of limits may contain values of other tenants.
        with pytest.raises(StoreUnavailable, match="by their names only"):
            far.uses({})
        assert [use.name for use in far.uses({}, ["mail"])] == ["mail"]
        assert far.enqueue([mine._replace(id=new_id())])[0].created
        assert far.finish([Finish(claim, COMPLETED)]) == frozenset()


def test_a_grant_of_tasks_restricts_what_is_dealt(store: MemoryStore, wire: str) -> None:
    wanted, other = NewJob(new_id(), "report.daily"), NewJob(new_id(), "mail.send")
    store.enqueue([other, wanted])
    with served(store, wire, a_key(store, "jobs.work task=report.*")) as (_, far):
        me = worker_of(far)
        request = ClaimRequest(me.id, [ANY_LANE], 9, ["mail.send", "report.daily"])
        assert [claim.id for claim in far.claim(request)] == [wanted.id]


@pytest.mark.parametrize("verb", ["claim", "step"])
def test_a_hand_cannot_claim_from_lanes_of_its_choice(store: MemoryStore, wire: str, verb: str) -> None:
    """It could otherwise pass over its grants, the limits and the pauses."""
    store.enqueue([NewJob(new_id(), "mail.send")])
    with served(store, wire, a_key(store, "jobs.work task=report.*")) as (_, far):
        request = ClaimRequest(worker_of(far).id, [Lane("default", "default", 0)], 9)
        with pytest.raises(StoreUnavailable, match="the hub chooses their lanes"):
            far.claim(request) if verb == "claim" else far.step([], request)
    assert store.depth(most=9) == 1


def test_a_grant_of_tasks_restricts_what_a_hand_reads(store: MemoryStore, wire: str) -> None:
    own, other = NewJob(new_id(), "report.daily"), NewJob(new_id(), "mail.send", args='{"to":"ada"}')
    store.enqueue([own, other])
    with served(store, wire, a_key(store, "jobs.work task=report.*")) as (_, far):
        assert [row.id for row in far.get([own.id, other.id], tenant=ALL_TENANTS)] == [own.id]
        reads: list[Callable[[], object]] = [
            lambda: far.job_starts([own.id, other.id]),
            lambda: far.checkpoints(other.id, tenant=ALL_TENANTS),
            lambda: far.executions([other.id], tenant=ALL_TENANTS),
        ]
        for read in reads:
            with pytest.raises(StoreUnavailable, match=r"includes jobs of the task mail\.send"):
                read()
        assert set(far.job_starts([own.id]).details) == {own.id}
    with served(store, wire, a_key(store, "jobs.work task=report.*", "jobs.*")) as (_, far):
        assert len(far.get([own.id, other.id], tenant=ALL_TENANTS)) == 2
        assert set(far.job_starts([own.id, other.id]).details) == {own.id, other.id}


def test_a_grant_of_tasks_restricts_what_a_hand_enqueues(store: MemoryStore, wire: str) -> None:
    store.enqueue([NewJob(new_id(), "report.daily")])
    own, other = NewJob(new_id(), "report.part"), NewJob(new_id(), "mail.send")
    with served(store, wire, a_key(store, "jobs.work task=report.*")) as (_, far):
        me = worker_of(far)
        (claim,) = far.claim(ClaimRequest(me.id, [ANY_LANE], 9, ["report.daily"]))
        writes: list[Callable[[], object]] = [
            lambda: far.enqueue([own, other]),
            lambda: far.finish([Finish(claim, COMPLETED, then=(other,))]),
            lambda: far.finish([Finish(claim, COMPLETED, additions=Additions(jobs=(other,)))]),
        ]
        for write in writes:
            with pytest.raises(UsageError, match=r"may not enqueue mail\.send"):
                write()
        assert far.finish([Finish(claim, COMPLETED, then=(own,))]) == frozenset()
    assert [row.task for row in store.get([own.id, other.id], tenant=ALL_TENANTS)] == ["report.part"]
    with served(store, wire, a_key(store, "jobs.work task=report.*", "jobs.run task=mail.*")) as (_, far):
        assert far.enqueue([other])[0].created


def test_the_audit_names_the_job_that_a_hand_ran_as_the_actor(store: MemoryStore, wire: str) -> None:
    store.enqueue([NewJob(new_id(), "work")])
    following = NewJob(new_id(), "work")
    entry = AuditEntry("key:ab12 (ann)", "job.enqueued", f"job:{following.id}", "default")
    with served(store, wire) as (_, far):
        (claim,) = ask(far, worker_of(far)).claims
        forged = Finish(
            claim,
            COMPLETED,
            then=(following,),
            audit=((following.id, replace(entry, action="keys.created")),),
        )
        with pytest.raises(StoreUnavailable, match="not about a job that this one enqueues"):
            far.finish([forged])
        assert far.finish([forged._replace(audit=((following.id, entry),))]) == frozenset()
    (record,) = store.audit(tenant=ALL_TENANTS)
    assert record.entry.who == f"job:{claim.id} (key:ab12 (ann))"


def test_a_hand_cannot_set_the_time_or_a_long_lease(store: MemoryStore, wire: str) -> None:
    with served(store, wire) as (_, far):
        with pytest.raises(StoreUnavailable, match="tells the time"):
            far.beat([far.new_worker_id()], lease=LEASE, now=store.now())
        with pytest.raises(StoreUnavailable, match="too long"):
            far.register(Worker(far.new_worker_id(), "x"), lease=timedelta(days=1))


def test_errors_of_the_store_reach_the_hand_with_their_details(store: MemoryStore, wire: str) -> None:
    job = NewJob(new_id(), "work")
    with served(store, wire) as (_, far):
        far.enqueue([job])
        with pytest.raises(JobExists) as caught:
            far.enqueue([job])
        assert caught.value.details["ids"] == {job.id}
        assert not issubclass(PriorityTooHigh, StoreUnavailable)


def test_a_verb_that_needs_the_database_is_refused(store: MemoryStore, wire: str) -> None:
    with served(store, wire) as (_, far), pytest.raises(UsageError, match="a hand has no database"):
        far.schedules(tenant=ALL_TENANTS)


def test_without_a_hub_a_call_fails_in_time(store: MemoryStore, wire: str) -> None:
    with (
        a_far_store(wire, a_key(store), timeout=0.2) as far,
        pytest.raises(StoreUnavailable, match="no hub answered"),
    ):
        far.now()


def test_without_a_broker_a_call_fails_in_time(store: MemoryStore) -> None:
    with (
        a_far_store("nats://127.0.0.1:1/x", a_key(store), timeout=0.5) as far,
        pytest.raises(StoreUnavailable, match="cannot be used"),
    ):
        far.now()


def test_a_message_larger_than_a_frame_arrives_whole(store: MemoryStore, wire: str) -> None:
    text = '"' + "".join(str(n * n % 9973) for n in range(900_000)) + '"'
    job = NewJob(new_id(), "work", args=text)
    with served(store, wire) as (_, far):
        far.enqueue([job])
        (claim,) = ask(far, worker_of(far)).claims
        assert claim.args == text


class CountingStore(MemoryStore):
    """Counts deals and heartbeats, and holds the first deal until the others wait."""

    def __init__(self) -> None:
        super().__init__()
        self.deals: list[int] = []
        self.gate = threading.Event()

    def deal(
        self, finishes: Sequence[Finish], request: DealRequest, *, now: datetime | None = None
    ) -> StepResult:
        self.deals.append(len(request.asks))
        if len(self.deals) == 1:
            self.gate.wait(10)
        return super().deal(finishes, request, now=now)


def test_asks_of_many_hands_become_one_deal(wire: str) -> None:
    store = CountingStore()
    store.enqueue([NewJob(new_id(), "work") for _ in range(40)])
    with served(store, wire) as (hub, far):
        workers = [worker_of(far) for _ in range(20)]
        answers: list[list[Claim]] = []
        threads = [
            threading.Thread(target=lambda me=me: answers.append(ask(far, me, 2).claims)) for me in workers
        ]
        for thread in threads:
            thread.start()
        while hub.counts().requests < 20 + len(workers):
            threading.Event().wait(0.005)
        store.gate.set()
        for thread in threads:
            thread.join()
        assert [len(claims) for claims in answers] == [2] * 20
        assert len({claim.id for claims in answers for claim in claims}) == 40
        assert len(store.deals) < 10
    store.close()


def test_a_lost_job_and_its_new_holder_may_finish_at_once(wire: str) -> None:
    store = CountingStore()
    store.enqueue([NewJob(new_id(), "work")])
    with served(store, wire) as (_, far):
        old, new = worker_of(far), worker_of(far)
        store.gate.set()
        (stale,) = ask(far, old).claims
        store.finish([Finish(stale, COMPLETED)])
        again = NewJob(new_id(), "work")
        store.enqueue([again])
        (claim,) = ask(far, new).claims
        zombie = Finish(claim._replace(token=claim.token, worker=old.id), COMPLETED)
        lost: list[frozenset[object]] = []
        threads = [
            threading.Thread(target=lambda one=one: lost.append(far.finish([one])))
            for one in (zombie, Finish(claim, COMPLETED))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(len, lost)) == [0, 1]
    assert store.get([again.id], tenant=ALL_TENANTS)[0].state is JobState.COMPLETED
    store.close()


# Hands -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """An app in a file, with a task for each kind of slot, and one that enqueues."""
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="work")
    def work(n: int) -> int:
        return 2 * n

    @app.task(name="wait")
    async def wait(n: int) -> int:
        return 3 * n

    yield app
    app.close()


def test_hands_run_jobs_and_are_woken_for_new_ones(app: App, wire: str) -> None:
    key = a_key(app.store)
    with ExitStack() as stack:
        hub = stack.enter_context(a_hub(app.store, wire))
        for _ in range(3):
            # They would look again after an hour only.
            stack.enter_context(a_hand(app, wire, key, poll=3600.0))
        jobs = [app.enqueue("work" if n % 2 else "wait", n=n) for n in range(30)]
        assert [job.result(timeout=30) for job in jobs] == [(2 if n % 2 else 3) * n for n in range(30)]
        assert app.enqueue("work", n=5).result(timeout=30) == 10
        assert hub.counts().dealt == 31


def test_hands_of_two_hubs_share_the_jobs(app: App, wire: str) -> None:
    key = a_key(app.store)
    with ExitStack() as stack:
        hubs = [stack.enter_context(a_hub(app.store, wire)) for _ in range(2)]
        for _ in range(4):
            stack.enter_context(a_hand(app, wire, key))
        jobs = [app.enqueue("work", n=n) for n in range(60)]
        assert [job.result(timeout=30) for job in jobs] == [2 * n for n in range(60)]
        assert sum(hub.counts().dealt for hub in hubs) == 60


def test_a_hand_survives_the_loss_of_its_hub(app: App, wire: str) -> None:
    key = a_key(app.store)
    with a_hub(app.store, wire) as first, ExitStack() as stack:
        stack.enter_context(a_hand(app, wire, key, poll=0.2))
        assert app.enqueue("work", n=1).result(timeout=30) == 2
        first.close()
        stack.enter_context(a_hub(app.store, wire))
        assert app.enqueue("work", n=2).result(timeout=30) == 4


def test_a_running_job_of_a_hand_can_be_cancelled(app: App, wire: str) -> None:
    begun = threading.Event()

    @app.task(name="endless")
    async def endless() -> None:
        import asyncio

        begun.set()
        await asyncio.sleep(3600)

    with a_hub(app.store, wire), a_hand(app, wire, a_key(app.store)):
        job = app.enqueue("endless")
        assert begun.wait(20)
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(timeout=20)


def test_a_stopped_hand_releases_its_jobs(app: App, wire: str) -> None:
    begun = threading.Event()

    @app.task(name="endless")
    async def endless() -> None:
        import asyncio

        begun.set()
        await asyncio.sleep(3600)

    with a_hub(app.store, wire):
        with a_hand(app, wire, a_key(app.store), grace=0.1):
            job = app.enqueue("endless")
            assert begun.wait(20)
        assert job.refresh().status == "pending"
        assert not [worker for worker in app.store.workers() if not worker.left]


def test_handlers_on_a_hand_enqueue_through_the_hub(app: App, wire: str, tmp_path: Path) -> None:
    key = a_key(app.store)
    far_app = App("memory://")

    @far_app.task(name="work")
    def work(n: int) -> int:
        return 2 * n

    @far_app.task(name="first")
    async def first(n: int) -> str:
        return str((await work.aenqueue(n=n)).id)

    with a_hub(app.store, wire), a_far_store(wire, key) as far:
        far_app.configure(far)  # type: ignore[arg-type]
        with a_hand(far_app, wire, key):
            job = app.enqueue("first", n=21)
            follower = str(job.result(timeout=30))
            assert app.jobs.get(follower).result(timeout=30) == 42
    far_app.close()
