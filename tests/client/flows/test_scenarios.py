"""Named scenarios of workflows, on every store: races, kills, zombies and wrong clocks.

Other tests whose names begin with ``test_s`` and a number are scenarios of runs, batches, signals and durable functions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.grounds import url_of

from tidemill import App, ArchivePolicy, Context, ManualClock, NoRetry
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import (
    Additions,
    Edge,
    EdgeCondition,
    GroupKind,
    NewGroup,
    group_joins,
    job_joins,
    shard_of,
)
from tidemill.domain.job import Details, Finish, Move, Transition
from tidemill.domain.retention import ArchivedJob, Selection, Selector
from tidemill.domain.states import HELD, JobState
from tidemill.engine.duties.cascade import CascadeDuty
from tidemill.engine.duties.promote import BATCH
from tidemill.errors import IllegalTransition, PermanentError, StoreBusy, WaitCycle
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.flows import run, start, state_of
from tidemill.testing.conformance.kit import (
    ASLEEP,
    FAILED,
    SUSPENDED,
    T0,
    a_job,
    at,
    claim_all,
    claim_one,
    finish_all,
    patiently,
    put_one,
)

S, C = JobState, EdgeCondition
WIDE = 192
"""Members of the wide join: three times as many as one counter row takes."""
SLEEPERS = 500
MILLION = 1_000_000
LOT = 5_000
"""Jobs of the million that one statement takes."""


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with App(url_of(request.param, tmp_path, request), clock=ManualClock(), migrate=True) as app:
        yield app


def together(*acts: Callable[[], object]) -> None:
    """Run the acts in threads that start together; raise the first error."""
    barrier, errors = threading.Barrier(len(acts)), list[BaseException]()

    def play(act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            act()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=play, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_s1_the_last_two_needs_end_at_the_same_instant(app: App) -> None:
    store = app.store
    for _ in range(5):
        ids = start(store, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}})
        claims = {claim.id: claim for claim in claim_all(store)}
        ends = [[Finish(claims[ids[name]], COMPLETED)] for name in "ab"]
        together(*(lambda end=end: patiently(store.finish, end, now=T0) for end in ends))
        assert state_of(store, ids["c"]) is S.PENDING
        finish_all(store, claim_all(store))


def test_s2_a_transaction_that_dies_between_the_finish_and_its_count_leaves_nothing(app: App) -> None:
    store = app.store
    ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
    claim = claim_one(store, ids["a"])
    with suppress(KeyboardInterrupt), store.transaction():
        store.finish([Finish(claim, COMPLETED)], now=T0)
        raise KeyboardInterrupt  # the connection ends before the commit
    assert (state_of(store, ids["a"]) in HELD, state_of(store, ids["b"])) == (True, S.WAITING)
    assert store.finish([Finish(claim, COMPLETED)], now=T0) == frozenset()
    assert state_of(store, ids["b"]) is S.PENDING


@pytest.mark.parametrize("order", ["attached first", "ended first", "at once"])
def test_s3_a_need_ends_while_a_job_attaches(app: App, order: str) -> None:
    store = app.store
    need, waits = put_one(store), put_one(store, waiting="need")
    claim = claim_one(store, need)
    acts: list[Callable[[], object]] = [
        lambda: patiently(store.attach, [Edge(waits, need)], job_joins(waits, 1), tenant="default", now=T0),
        lambda: patiently(store.finish, [Finish(claim, COMPLETED)], now=T0),
    ]
    if order == "at once":
        together(*acts)
    else:
        for act in acts if order == "attached first" else acts[::-1]:
            act()
    assert state_of(store, waits) is S.PENDING


def test_s4_the_need_has_ended_or_is_archived(app: App) -> None:
    store = app.store
    ended, archived = put_one(store), put_one(store)
    finish_all(store, claim_all(store), now=at(1))
    app.clock.advance(timedelta(days=1))  # type: ignore[attr-defined]
    store.put_archive(documents := _documents(store, archived))
    assert store.forget(documents) == {archived}
    for need in (ended, archived):
        waits = put_one(store, waiting="need")
        store.attach([Edge(waits, need)], job_joins(waits, 1), tenant="default", now=at(2))
        assert state_of(store, waits) is S.PENDING


def _documents(store: Store, id: UUID) -> list[ArchivedJob]:
    found = store.archivable(Selection(Selector()), policy="p", tier="archive")
    return [document for document in found if document.id == id]


def test_s5_a_zombie_ends_a_need_a_second_time(app: App) -> None:
    store = app.store
    ids = start(store, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}})
    claims = {claim.id: claim for claim in claim_all(store)}
    first = [Finish(claims[ids["a"]], COMPLETED)]
    assert store.finish(first, now=T0) == frozenset()
    assert store.finish(first, now=T0) == {ids["a"]}
    assert state_of(store, ids["c"]) is S.WAITING
    assert store.recount_joins(now=T0).repaired == frozenset()


def test_s6_a_wide_join_is_counted_by_many_finishers_whose_transactions_die(app: App) -> None:
    store, flow = app.store, new_id()
    ids = [new_id() for _ in range(WIDE)]
    last = new_id()
    jobs = [
        a_job("work", id=id, details=Details(flow_id=flow, group_id=flow, group_shard=shard_of(place, WIDE)))
        for place, id in enumerate(ids)
    ]
    jobs.append(a_job("work", id=last, waiting="all", details=Details(flow_id=flow)))
    group = NewGroup(flow, "default", GroupKind.FLOW, "wide")
    edge = Edge(last, flow, C.SUCCESS)
    store.start_flow([group], jobs, [edge], [*group_joins(flow, WIDE), *job_joins(last, 1)], now=T0)
    claims = claim_all(store, limit=WIDE + 1)
    assert len(claims) == WIDE

    def finish(part: int) -> None:
        random = Random(part)
        mine = [claim for place, claim in enumerate(claims) if place % 8 == part]
        while mine:
            lot, mine = mine[:5], mine[5:]
            with suppress(StoreBusy, KeyboardInterrupt), store.transaction():
                store.finish([Finish(claim, COMPLETED) for claim in lot], now=T0)
                if random.random() < 0.3:
                    raise KeyboardInterrupt
                continue
            mine += lot

    together(*(lambda part=part: finish(part) for part in range(8)))
    assert state_of(store, last) is S.PENDING
    assert store.group_counts([flow])[0][1:] == (WIDE, 0, 0)
    assert store.recount_joins(now=T0).repaired == frozenset()


@pytest.mark.parametrize(
    ("ends", "state"),
    [
        ([COMPLETED, COMPLETED], S.PENDING),
        ([COMPLETED, FAILED], S.PENDING),
        ([FAILED, COMPLETED], S.PENDING),
        ([FAILED, FAILED], S.WAITING),
    ],
)
def test_s7_both_needs_of_any_end_in_one_batch(app: App, ends: list[Transition], state: JobState) -> None:
    store = app.store
    needs = {"c": {"a": C.SUCCESS, "b": C.SUCCESS}}
    ids = start(store, ["a", "b", "c"], needs, required={"c": 1})
    claims = {claim.id: claim for claim in claim_all(store)}
    batch = [Finish(claims[ids[name]], end) for name, end in zip("ab", ends, strict=True)]
    assert store.finish(batch, now=T0) == frozenset()
    assert state_of(store, ids["c"]) is state
    # Released once, or noted once as unreachable.
    assert [claim.id for claim in claim_all(store)] == [ids["c"]] * (state is S.PENDING)
    assert [row.job_id for row in store.unreachable(10)] == [ids["c"]] * (state is S.WAITING)
    assert store.recount_joins(now=T0).repaired == frozenset()


def test_s9_a_flow_is_cancelled_while_a_node_grows_it(app: App) -> None:
    @app.task
    def part() -> None: ...

    @app.task
    def plan(ctx: Context) -> None:
        for _ in range(3):
            ctx.flow.add(part)
        assert ctx.job.details.flow_id is not None
        app.flows.get(ctx.job.details.flow_id).cancel("changed my mind")

    flow = app.flow("growing")
    flow.add(plan).named("plan")
    started = flow.start()
    testing = app.testing()
    for _ in range(3):
        testing.drain()
        CascadeDuty(app.store, app.clock, pinned=True)()
    assert started.status == "cancelled"
    assert all(node.job.ended for node in started.nodes())


def test_s10_a_failed_node_is_retried_while_the_cascade_runs(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = app.store
    ids = start(store, ["a", "b", "c"], {"b": {"a": C.SUCCESS}, "c": {"b": C.SUCCESS}})
    run(store, ids["a"], FAILED)
    assert [row.job_id for row in store.unreachable(10)] == [ids["b"]]
    read = store.get

    def late(*args: Any, **more: Any) -> Any:
        """Retry the need after the cascade has read what to skip."""
        monkeypatch.setattr(store, "get", read)
        again = Move(ids["a"], "default", frozenset({S.FAILED}), S.PENDING, restart=True)
        assert store.reopen(ids["flow"], [again], tenant="default", now=at(2)) == {ids["a"]}
        return read(*args, **more)

    monkeypatch.setattr(store, "get", late)
    CascadeDuty(store, app.clock, pinned=True)()
    assert [state_of(store, ids[name]) for name in "abc"] == [S.PENDING, S.WAITING, S.WAITING]
    run(store, ids["a"])
    assert state_of(store, ids["b"]) is S.PENDING


def test_s10_nodes_that_the_cascade_skips_during_a_retry_wait_again(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = True

    @app.task(retry=NoRetry())
    def work() -> None:
        if failing:
            raise PermanentError("no")

    flow = app.flow("chain")
    first = flow.add(work).named("first")
    flow.add(work).after(first).named("second")
    started = flow.start()
    store = app.store
    run_one = claim_one(store, started.node("first").id)
    finish_all(store, [run_one], FAILED, now=at(1))
    reopen = store.reopen

    def late(*args: Any, **more: Any) -> Any:
        """The cascade comes first, and skips the second node."""
        monkeypatch.setattr(store, "reopen", reopen)
        CascadeDuty(store, app.clock, pinned=True)()
        return reopen(*args, **more)

    monkeypatch.setattr(store, "reopen", late)
    started.retry()
    assert [node.status for node in started.nodes()] == ["pending", "waiting"]
    failing = False
    app.testing().drain()
    assert started.status == "completed"


def test_s21_two_jobs_that_join_each_other_are_refused(app: App) -> None:
    store = app.store
    one, two = put_one(store), put_one(store)
    claims = {claim.id: claim for claim in claim_all(store)}
    for own, other, refused in ((one, two, False), (two, one, True)):
        waits = Additions(edges=(Edge(own, other, C.END),), joins=tuple(job_joins(own, 1)))
        finish = [Finish(claims[own], SUSPENDED, additions=waits)]
        if refused:
            with pytest.raises(WaitCycle):
                store.finish(finish, now=T0)
        else:
            assert store.finish(finish, now=T0) == frozenset()


def test_s22_many_sleepers_that_are_due_in_the_same_second_all_wake_up(app: App) -> None:
    woken: list[int] = []

    @app.task
    def sleeper(ctx: Context, number: int) -> None:
        ctx.sleep("nap", "1h")
        woken.append(number)

    jobs = sleeper.enqueue_many([{"number": number} for number in range(SLEEPERS)])
    testing = app.testing()
    testing.drain(limit=2 * SLEEPERS)
    assert app.store.flow_totals(tenant="default", ended_after=T0).sleeping == SLEEPERS
    testing.advance(timedelta(hours=1))
    testing.drain(limit=2 * SLEEPERS)
    assert sorted(woken) == list(range(SLEEPERS))
    assert {job.refresh().status for job in jobs[:: SLEEPERS // 10]} == {"completed"}


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
def test_s22_a_million_sleepers_that_are_due_in_the_same_second_are_released_once(app: App) -> None:
    store = app.store
    for _ in range(MILLION // LOT):
        store.enqueue([a_job("work") for _ in range(LOT)], now=T0)
        claims = claim_all(store, limit=LOT)
        assert len(claims) == LOT
        asleep = [Finish(claim, ASLEEP, additions=Additions()) for claim in claims]
        assert store.finish(asleep, now=T0) == frozenset()
    assert store.flow_totals(tenant=ALL_TENANTS, ended_after=T0).sleeping == MILLION
    early = store.promote(BATCH, now=at(3_599))
    assert (early.moved, early.next_run_at) == (0, at(3_600))
    assert store.promote(BATCH, now=at(3_600)).moved == BATCH
    # A job that is enqueued in the middle of it does not wait for the others.
    urgent = put_one(store, priority=9, now=at(3_600))
    assert [claim.id for claim in claim_all(store, now=at(3_600), limit=1)] == [urgent]
    released = BATCH
    while moved := store.promote(BATCH, now=at(3_600)).moved:
        released += moved
    assert released == MILLION
    assert store.flow_totals(tenant=ALL_TENANTS, ended_after=T0).sleeping == 0
    woken: set[UUID] = set()
    while claims := claim_all(store, now=at(3_600), limit=LOT):
        ids = {claim.id for claim in claims}
        assert woken.isdisjoint(ids)
        woken |= ids
    assert len(woken) == MILLION


def test_s26_a_worker_with_a_wrong_clock_neither_shortens_a_sleep_nor_a_deadline(app: App) -> None:
    """The store's time decides: the job is promoted by it, and not by the clock of the worker that suspended the job."""
    store = app.store
    id = put_one(store)
    claim = claim_one(store, id)
    # The worker passes a span; it has no way to pass an instant of its own clock.
    assert store.finish([Finish(claim, ASLEEP, additions=Additions())], now=at(0)) == frozenset()
    assert store.promote(10, now=at(3_599)).moved == 0
    assert state_of(store, id) is S.WAITING
    assert store.promote(10, now=at(3_600)).moved == 1
    assert state_of(store, id) is S.PENDING


def test_s27_finishers_that_lock_each_other_out_both_commit_in_the_end(app: App) -> None:
    """Members of a group and of a group inside it end at once: one of two transactions may have to be repeated."""
    store = app.store
    for _ in range(5):
        outer, inner = new_id(), new_id()
        jobs = [
            a_job("work", details=Details(flow_id=outer, group_id=group))
            for group in (outer, inner, outer, inner)
        ]
        groups = [
            NewGroup(outer, "default", GroupKind.FLOW, "outer"),
            NewGroup(inner, "default", GroupKind.MAP, "inner", group_id=outer),
        ]
        store.start_flow(groups, jobs, [], [*group_joins(outer, 3), *group_joins(inner, 2)], now=T0)
        claims = {claim.id: claim for claim in claim_all(store)}
        lots = [[Finish(claims[job.id], COMPLETED) for job in part] for part in (jobs[:2], jobs[2:])]
        together(*(lambda lot=lot: patiently(store.finish, lot, now=T0) for lot in lots))
        states = [flow.state.value for flow in store.flow([outer, inner], tenant=ALL_TENANTS)]
        assert states == ["completed", "completed"]
        assert store.recount_joins(now=T0).repaired == frozenset()


def test_s28_members_of_a_live_flow_are_not_deleted_archived_or_purged(app: App) -> None:
    @app.task
    def work(ctx: Context) -> None: ...

    @app.task
    def hold(ctx: Context) -> None:
        ctx.wait_for("go")

    flow = app.flow("live")
    flow.add(hold).after(flow.add(work).named("first")).named("second")
    started = flow.start()
    app.testing().drain()
    first = started.node("first").job
    assert first.status == "completed"
    with pytest.raises(IllegalTransition, match="its flow, or a job that needs it, has not ended"):
        first.delete()
    assert app.jobs.delete(ids=[first.id]).done == 0
    with pytest.raises(IllegalTransition, match="cannot erase"):
        app.archive.erase(ids=[first.id])
    app.clock.advance(timedelta(days=400))  # type: ignore[attr-defined]
    for policy in (ArchivePolicy("copy", max_age=0), ArchivePolicy("purge", max_age=0, to=None)):
        app.archive.run([policy])
    assert app.jobs.get(first.id).archived_at is None
    app.signals.send(started.node("second").id, "go")
    app.testing().drain()
    assert started.status == "completed"
    first.delete()


def test_s29_a_job_attaches_in_the_instant_of_its_own_release(app: App) -> None:
    """The waiting job gets a second need while the first one ends: it waits for both, or the second comes too late."""
    store = app.store
    for _ in range(5):
        one, two, waits = put_one(store), put_one(store), put_one(store, waiting="needs")
        store.attach([Edge(waits, one)], job_joins(waits, 1), tenant="default", now=T0)
        claims = {claim.id: claim for claim in claim_all(store)}
        end = [Finish(claims[one], COMPLETED)]
        edge, join = [Edge(waits, two)], job_joins(waits, 1)
        together(
            partial(patiently, store.finish, end, now=T0),
            partial(patiently, store.attach, edge, join, tenant="default", now=T0),
        )
        assert state_of(store, waits) in (S.PENDING, S.WAITING)
        finish_all(store, [claims[two]])
        assert state_of(store, waits) is S.PENDING
        assert store.recount_joins(now=T0).repaired == frozenset()
        finish_all(store, claim_all(store))
