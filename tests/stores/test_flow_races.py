"""Races of finishes and edges on PostgreSQL, with separate connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.graph import Additions, Edge, EdgeCondition, NewJoin, grown_joins, grown_shard, job_joins
from tidemill.domain.job import Claim, Details, Finish
from tidemill.domain.states import JobState
from tidemill.errors import StoreBusy
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.driver import run_one_by_one
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.postgres import end_counts
from tidemill.testing.conformance.flows import start, state_of
from tidemill.testing.conformance.kit import T0, a_job, claim_all, claim_one, patiently, put_one

ROUNDS = 12
C = EdgeCondition


@pytest.fixture
def pair(migrated_postgres_url: str) -> Iterator[tuple[Store, Store]]:
    stores = open_store(migrated_postgres_url), open_store(migrated_postgres_url)
    yield stores
    for store in stores:
        store.close()


def at_once(*acts: Callable[[], object]) -> None:
    """Run the acts in threads that start together; raise the first error."""
    barrier, errors = threading.Barrier(len(acts)), list[BaseException]()

    def run(act: Callable[[], object]) -> None:
        barrier.wait()
        try:
            act()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def slowly(store: Store, name: str) -> Iterator[None]:
    """Let one query of this store wait before it runs, until another thread has had time to run its own."""
    driver = store._db  # type: ignore[attr-defined]
    run = driver.run

    def late(query: str, *args: object, **more: object) -> object:
        rows = run(query, *args, **more)
        if query == name:
            threading.Event().wait(0.05)
        return rows

    driver.run = late
    try:
        yield
    finally:
        del driver.run


@contextmanager
def changed_query(pair: tuple[Store, Store], name: str, old: str, new: str) -> Iterator[tuple[Store, Store]]:
    """Open the stores again, with another text in one query."""
    queries = load("postgres")
    right = queries[name]
    assert old in right.body
    queries[name] = replace(right, body=right.body.replace(old, new))
    one, two = (open_store(str(store.url)) for store in pair)
    try:
        yield one, two
    finally:
        queries[name] = right
        one.close()
        two.close()


def end(store: Store, claim: Claim, *, tied: bool = True) -> None:
    assert patiently(store.finish, [Finish(claim, COMPLETED, tied=tied)], now=T0) == frozenset()


def race_two_ends(pair: tuple[Store, Store]) -> list[JobState]:
    """End the last two needs of a job at the same instant, several times; return the states of the jobs."""
    one, two = pair
    states = []
    for _ in range(ROUNDS):
        ids = start(one, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}})
        claims = {claim.id: claim for claim in claim_all(one)}
        at_once(lambda: end(one, claims[ids["a"]]), lambda: end(two, claims[ids["b"]]))  # noqa: B023
        states.append(state_of(one, ids["c"]))
        for claim in claim_all(one):
            end(one, claim)
    return states


def test_two_finishers_that_end_the_last_needs_together_release_the_job(pair: tuple[Store, Store]) -> None:
    late = "from held h where pg_sleep(0.02) is not null and"
    with changed_query(pair, "lock_ties", "from held h where", late) as slow:
        assert race_two_ends(slow) == [JobState.PENDING] * ROUNDS


def test_counts_that_ignore_other_finishers_lose_an_end(pair: tuple[Store, Store]) -> None:
    """A count from the snapshot instead of the row: the race above must notice it."""
    stale = (
        "remaining = (select o.remaining from tidemill.joins o where o.id = c.id and o.shard = 0) - c.good"
    )
    # Without the lock, both statements take their snapshots before either has counted.
    with (
        changed_query(pair, "lock_ties", " for update", "") as (one, two),
        changed_query((one, two), "finish_tied", "remaining = j.remaining - c.good", stale) as wrong,
        changed_query(
            wrong, "finish_tied", "from gone g left", "from gone g cross join pg_sleep(0.05) left"
        ) as slow,
    ):
        assert is_lost(lambda: race_two_ends(slow))


def is_lost(race: Callable[[], list[JobState]]) -> bool:
    """Whether a job still waits after a race of a wrong store. On a busy machine a race may miss its moment."""
    return any(JobState.WAITING in race() for _ in range(10))


def race_attach(pair: tuple[Store, Store], *, tied: bool) -> list[JobState]:
    """Attach a waiting job to a need that ends at the same instant, several times. ``tied``: the finisher counts at once."""
    one, two = pair
    states = []
    for _ in range(ROUNDS):
        need, waits = put_one(one), put_one(one, waiting="need")
        claim = claim_one(one, need)

        def attach(waits: UUID = waits, need: UUID = need) -> None:
            patiently(two.attach, [Edge(waits, need)], job_joins(waits, 1), tenant="default", now=T0)

        with slowly(two, "tie_needs"):
            at_once(lambda: end(one, claim, tied=tied), attach)  # noqa: B023
        states.append(state_of(one, waits))
        for held in claim_all(one):
            end(one, held)
    return states


@pytest.mark.parametrize("tied", [True, False])
def test_an_edge_that_is_attached_while_its_need_ends_is_counted(
    pair: tuple[Store, Store], tied: bool
) -> None:
    assert race_attach(pair, tied=tied) == [JobState.PENDING] * ROUNDS


def test_a_finish_that_does_not_lock_first_misses_an_edge(pair: tuple[Store, Store]) -> None:
    """The switch ``no-lock-first``: the race above must notice it."""
    with changed_query(pair, "lock_ties", " for update", "") as wrong:
        assert is_lost(lambda: race_attach(wrong, tied=True))


def test_a_plain_finish_that_takes_tied_jobs_loses_an_end(pair: tuple[Store, Store]) -> None:
    """The switch ``no-followed-guard``: the race above must notice it."""
    guard = "and not r.tied -- when plain"
    with changed_query(pair, "finish", guard, "-- when plain") as wrong:
        assert is_lost(lambda: race_attach(wrong, tied=False))


def test_a_deadlock_leaves_both_finishes_possible(pair: tuple[Store, Store]) -> None:
    one, two = pair
    for _ in range(ROUNDS):
        first = start(one, ["a", "b"], {"b": {"a": C.SUCCESS}})
        second = start(one, ["a", "b"], {"b": {"a": C.SUCCESS}})
        claims = {claim.id: claim for claim in claim_all(one)}

        def both(store: Store, ids: list[UUID], claims: dict[UUID, Claim] = claims) -> None:
            try:
                with store.transaction():
                    for id in ids:
                        store.finish([Finish(claims[id], COMPLETED)], now=T0)
            except StoreBusy:
                pass

        order = [first["a"], second["a"]]
        at_once(lambda: both(one, order), lambda: both(two, order[::-1]))  # noqa: B023
        assert state_of(one, first["b"]) is state_of(one, second["b"]) is JobState.PENDING
        for claim in claim_all(one):
            end(one, claim)


class Killed(Exception):
    """The process dies here."""


def die_before_count(store: Store, monkeypatch: pytest.MonkeyPatch) -> tuple[UUID, Claim]:
    """End the last job of a flow in a process that dies before it counts the end of the flow, for which another job waits."""
    ids = start(store, ["a"], {})
    waits = put_one(store, waiting="need")
    store.attach([Edge(waits, ids["flow"])], job_joins(waits, 1), tenant="default", now=T0)
    claim = claim_one(store, ids["a"])

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(end_counts, "_count_turns", die)
        with pytest.raises(Killed):
            store.finish([Finish(claim, COMPLETED, tied=True)], now=T0)
    return waits, claim


def test_a_finish_that_dies_before_its_count_leaves_nothing(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, claim = die_before_count(pair[0], monkeypatch)
    assert state_of(pair[1], claim.id) is JobState.RUNNING
    end(pair[1], claim)
    assert state_of(pair[1], waits) is JobState.PENDING


def test_a_count_in_a_second_transaction_loses_an_end(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch ``two-transactions``: the test above must notice it."""
    store = pair[0]
    driver = store._db  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(
            driver, "run_turns", lambda begin: run_one_by_one(lambda call: driver.run(*call), begin())
        )
        waits, claim = die_before_count(store, monkeypatch)
    assert state_of(store, claim.id) is JobState.COMPLETED
    assert store.finish([Finish(claim, COMPLETED, tied=True)], now=T0) == {claim.id}
    assert state_of(store, waits) is JobState.WAITING
    assert store.recount_joins().repaired == {waits}
    assert state_of(store, waits) is JobState.PENDING


def test_a_finish_that_is_repeated_is_lost_and_counts_nothing(pair: tuple[Store, Store]) -> None:
    store = pair[0]
    ids = start(store, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}})
    claims = {claim.id: claim for claim in claim_all(store)}
    end(store, claims[ids["a"]])
    assert store.finish([Finish(claims[ids["a"]], COMPLETED, tied=True)], now=T0) == {ids["a"]}
    assert state_of(store, ids["c"]) is JobState.WAITING
    end(store, claims[ids["b"]])
    assert state_of(store, ids["c"]) is JobState.PENDING


def growth(claim: Claim, group: UUID, last: UUID, position: int, count: int) -> Finish:
    """The end of a member that adds members to its group; ``last`` waits for them as well."""
    shard = grown_shard(position)
    details = Details(flow_id=group, group_id=group, group_shard=shard)
    jobs = tuple(a_job("grown", details=details) for _ in range(count))
    joins = (*grown_joins(group, position, count), NewJoin(last, shard, count, 0, count))
    edges = tuple(Edge(last, job.id, C.SUCCESS, shard) for job in jobs)
    return Finish(claim, COMPLETED, tied=True, additions=Additions(jobs, edges, joins))


@contextmanager
def before(store: Store, name: str, act: Callable[[], object]) -> Iterator[None]:
    """Act once, before the first run of a query of this store."""
    driver = store._db  # type: ignore[attr-defined]
    run, acts = driver.run, [act]

    def late(query: str, *args: object, **more: object) -> object:
        if query == name and acts:
            acts.pop()()
        return run(query, *args, **more)

    driver.run = late
    try:
        yield
    finally:
        del driver.run


def test_a_recount_leaves_a_join_alone_that_grows_at_the_same_time(pair: tuple[Store, Store]) -> None:
    one, two = pair
    ids = start(one, ["a", "last"], {"last": {"a": C.SUCCESS}})
    claim = claim_one(one, ids["a"])
    grown = growth(claim, ids["flow"], ids["last"], 0, 2)
    with before(one, "lock_joins", lambda: two.finish([grown], now=T0)):
        assert one.recount_joins(now=T0).repaired == frozenset()
    assert one.unreachable(10) == []
    for member in claim_all(one):
        end(one, member)
    assert state_of(one, ids["last"]) is JobState.PENDING


def test_two_members_that_grow_a_group_by_the_same_counter_row_are_both_counted(
    pair: tuple[Store, Store],
) -> None:
    one, two = pair
    names = [f"n{place}" for place in range(66)]
    ids = start(one, [*names, "last"], {"last": dict.fromkeys(names[:2], C.SUCCESS)})
    claims = {claim.id: claim for claim in claim_all(one)}
    # The two members count into different rows, so nothing but the growth makes them wait for each other.
    first, second = (claims[ids[name]] for name in (names[16], names[40]))
    mine = growth(first, ids["flow"], ids["last"], 8 * 63, 1)
    other = growth(second, ids["flow"], ids["last"], 8 * 63, 1)
    with before(one, "lock_joins", lambda: two.finish([other], now=T0)):
        one.finish([mine], now=T0)
    counts = one.group_counts([ids["flow"]])[0]
    assert (counts.total, counts.remaining) == (len(names) + 3, len(names) + 1)
    assert one.recount_joins(now=T0).repaired == frozenset()
