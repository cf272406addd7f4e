"""Tests of completing a job in the user's transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.client.connections_kit import Completion, Errand, User, job, orders, prepare
from tests.client.test_connections import CASES
from tests.servers.postgres import TestPostgres

from tidemill.client.own_connection import finish_on
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Details, Finish, JobRow, LogEntry, Progress, ProgressReport, UniqueHold
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import Rule
from tidemill.domain.records import AuditEntry
from tidemill.domain.states import JobState
from tidemill.errors import JobExists, UsageError
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store

RULES = {"slow": Rule("slow", max=100)}
AT = datetime(2026, 1, 1, tzinfo=UTC)
SAME = new_id()


@pytest.fixture(scope="module")
def postgres_store(postgres: TestPostgres) -> Iterator[Store]:
    name = f"completions_{new_id().hex[-12:]}"
    store = open_store(postgres.create_database(name), migrate=True)
    prepare(store.url)
    yield store
    store.close()
    postgres.drop_database(name)


@pytest.fixture(scope="module")
def sqlite_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('completions') / 'jobs.db'}")
    store.check()
    prepare(store.url)
    yield store
    store.close()


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


def held(store: Store, key: str) -> Claim:
    """A running job with a unique key, a limit and details."""
    new = job(unique=UniqueHold(key), limits=("slow",), details=Details(correlation_id=key), queue=key)
    store.enqueue([new])
    (lane,) = store.gates([key])
    worker = store.register(Worker(new_id(), "a worker"), lease=timedelta(hours=1)).id
    (claim,) = store.claim(ClaimRequest(worker, [lane._replace(limits=("slow",))], 1, rules=RULES))
    assert claim.limits == ("slow",)
    return claim


def used(store: Store) -> int:
    return store.uses(RULES, ["slow"])[0].used


def seen(store: Store, claim: Claim) -> JobRow:
    """The job without the fields that differ between any two jobs."""
    (found,) = store.get([claim.id], tenant=ALL_TENANTS)
    assert found.started_at is not None
    assert found.finished_at is not None
    assert timedelta(seconds=1.5) <= found.finished_at - found.started_at <= timedelta(seconds=2.5)
    return replace(
        found,
        id=SAME,
        queue="",
        worker=None,
        unique_key=None,
        details=Details(),
        progress=None,
        run_at=AT,
        created_at=AT,
        claimed_at=AT,
        started_at=AT,
        finished_at=AT,
    )


@pytest.mark.parametrize(("store", "user"), CASES, indirect=["store"])
@pytest.mark.parametrize("commit", [True, False])
def test_completion_commits_or_rolls_back_with_the_users_rows(store: Store, user: User, commit: bool) -> None:
    before, kept = used(store), orders(store.url)
    mine, usual = held(store, f"a-{new_id()}"), held(store, f"b-{new_id()}")
    following = (
        job("next", details=Details(parent_id=mine.id, tags=("ü",)), queue=f"q-{mine.id}"),
        job("next", delay=timedelta(hours=1), unique=UniqueHold(f"n-{mine.id}"), limits=("slow",)),
    )
    entry = AuditEntry("ann", "job.enqueued", f"job:{following[0].id}", "default", None, {"task": "next"})
    finish = Finish(mine, COMPLETED, '{"n":1}', None, 2.0, 0.0, following, ((following[0].id, entry),))
    line = LogEntry(mine.id, mine.token, AT, "said before", "info", None, {"n": 1}, timedelta(seconds=1))
    line = replace(line, worker=mine.worker)
    completion = Completion(finish, [line], [ProgressReport(mine.id, mine.token, mine.worker, Progress(0.5))])
    assert user(Errand(store.url, store, [completion], commit)) == [True]
    assert orders(store.url) - kept == int(commit)
    found = {each.id for each in store.get([new.id for new in following], tenant=ALL_TENANTS)}
    subjects = [record.entry.subject for record in store.audit(tenant=ALL_TENANTS, newest=True, limit=1)]
    if not commit:
        assert store.get([mine.id], tenant=ALL_TENANTS)[0].state is JobState.RUNNING
        assert (found, used(store) - before) == (set(), 2)
        assert entry.subject not in subjects
        assert store.finish([finish]) == frozenset()  # the worker's own finish, after the rollback
        assert len(store.get([new.id for new in following], tenant=ALL_TENANTS)) == 2
    else:
        assert found == {new.id for new in following}
        assert subjects == [entry.subject]
        assert store.finish([finish]) == {mine.id}  # the worker's own finish finds the job completed
    assert store.finish([Finish(usual, COMPLETED, '{"n":1}', None, 2.0, 0.0)]) == frozenset()
    assert used(store) == before
    assert seen(store, mine) == seen(store, usual)
    executions = [store.executions([claim.id], tenant=ALL_TENANTS) for claim in (mine, usual)]
    assert [
        [(each.number, each.attempt, each.state, each.error, each.reason) for each in some]
        for some in executions
    ] == [[(1, 1, executions[0][0].state, None, None)]] * 2
    # The keys are free again.
    again = [job(unique=UniqueHold(claim.unique_key or "")) for claim in (mine, usual)]
    assert [answer.created for answer in store.enqueue(again)] == [True, True]
    if commit and store.url.startswith("sqlite"):
        assert [each.message for _, each in store.logs(mine.id, tenant=ALL_TENANTS)] == ["said before"]
    assert completion.flushed == store.url.startswith("postgres")


@pytest.mark.parametrize(("store", "user"), CASES, indirect=["store"])
def test_a_job_whose_claim_was_lost_returns_false_and_writes_nothing(store: Store, user: User) -> None:
    mine = held(store, f"a-{new_id()}")
    stale = Finish(mine._replace(token=mine.token + 1), COMPLETED, then=(job("next"),))
    assert user(Errand(store.url, store, [Completion(stale)])) == [False]
    assert store.get([mine.id], tenant=ALL_TENANTS)[0].state is JobState.RUNNING
    assert store.get([stale.then[0].id], tenant=ALL_TENANTS) == []


@pytest.mark.parametrize(("store", "user"), [CASES[0], CASES[3], CASES[-2]], indirect=["store"])
def test_a_duplicate_next_job_undoes_the_completion_but_not_the_users_transaction(
    store: Store, user: User
) -> None:
    mine, kept = held(store, f"a-{new_id()}"), orders(store.url)
    known = job("next")
    store.enqueue([known])
    finish = Finish(mine, COMPLETED, then=(job("next"), known))
    (answer,) = user(Errand(store.url, store, [Completion(finish)]))
    assert isinstance(answer, JobExists)
    assert store.get([mine.id], tenant=ALL_TENANTS)[0].state is JobState.RUNNING
    assert orders(store.url) == kept + 1


def test_a_store_without_connections_is_refused() -> None:
    memory = MemoryStore()
    finish = Finish(held(memory, "k"), COMPLETED)
    with pytest.raises(UsageError, match="is not a database that connection= can use"):
        finish_on(object(), memory, finish, Completion(finish))
