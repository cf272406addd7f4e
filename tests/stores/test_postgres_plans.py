"""Tests that every frequent query uses an index.

Queries must use it with any statistics, and with a plan made while the tables were empty. The tests inspect the plans of the
driver's own prepared statements, on its own connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from tests.servers.postgres import TestPostgres

from tidemill.domain.deals import Ask, DealRequest
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort, encode_cursor
from tidemill.domain.job import Claim, Finish, Transition
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.limits import LimitKind, Rule, gate_of
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.schedules import Advance
from tidemill.domain.states import LIVE, ExecutionState, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.driver import PostgresDriver
from tidemill.testing.conformance.kit import due

pytestmark = pytest.mark.long

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKER = UUID(int=1)
ROWS, HELD = 50_000, 2_000
SCHEDULES, FIRED = 100_000, 1_000
JOB_TABLES = {"ready", "scheduled", "parked", "running", "history"}
TABLES = JOB_TABLES | {"schedules", "definitions", "fires", "uses", "starts"}
LANES = [Lane("queue-1", "tenant-1", 0, quota=50), Lane("queue-2", "tenant-0", 5, quota=50)]

_COMMON = "id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, detailed, args"
_VALUES = """
    select gen_random_uuid(), 'tenant-' || n % 3, 'queue-' || n % 5, 'task-' || n % 50, n % 3 * 5, 1, 3, 0, 1,
           timestamptz '2026-01-01' + n * interval '1 second', timestamptz '2026-01-01', false, '[]'"""
SEED = f"""
insert into tidemill.ready({_COMMON}, until_claimed) {_VALUES}, false from generate_series(1, {ROWS}) n;
insert into tidemill.scheduled({_COMMON}, until_claimed) {_VALUES}, false from generate_series(1, {ROWS}) n;
insert into tidemill.history({_COMMON}, state, execution, finished_at)
    {_VALUES}, case n % 20 when 0 then 'failed' else 'completed' end, 'succeeded',
    timestamptz '2026-01-01' + n * interval '1 second' from generate_series(1, {ROWS}) n;
insert into tidemill.running({_COMMON}, state, worker, claimed_at, started_at, timeout)
    {_VALUES}, 'running', ('00000000-0000-0000-0000-' || lpad((n % 20)::text, 12, '0'))::uuid,
    timestamptz '2026-01-01', timestamptz '2026-01-01', interval '1 hour' from generate_series(1, {HELD}) n;
insert into tidemill.workers
    select ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'w', 'h', 1, 'n', '1', '[]', '[]', 1, 'active',
           timestamptz '2026-01-01', timestamptz '2026-01-01', timestamptz '2099-01-01', 1 from generate_series(0, 19) n;
insert into tidemill.parked({_COMMON}, until_claimed, state, wakes, expires_at)
    {_VALUES}, false, case n % 3 when 0 then 'review_needed' else 'waiting' end, n % 2 = 0,
    case n % 50 when 1 then timestamptz '2026-01-01' + n * interval '1 second' end from generate_series(1, {ROWS}) n;
update tidemill.ready set expires_at = run_at where task = 'task-1';
update tidemill.scheduled set expires_at = run_at where task = 'task-1';
insert into tidemill.definitions(id, tenant, key, name, task, version, args, enabled, created_at, updated_at)
    select ('00000000-0000-0000-0001-' || lpad(n::text, 12, '0'))::uuid, 'default', 'd' || n, '', 't', 1, '{{}}', n % 5 > 0,
           timestamptz '2026-01-01', timestamptz '2026-01-01' from generate_series(1, 10000) n;
insert into tidemill.schedules(id, tenant, key, definition_id, task, trigger, timezone, args, misfire, overlap, scope, source,
                               enabled, created_at, updated_at, next_fire_at)
    select ('00000000-0000-0000-0002-' || lpad(n::text, 12, '0'))::uuid, 'default', 's' || n,
           case when n % 10 = 0 then ('00000000-0000-0000-0001-' || lpad((n / 10)::text, 12, '0'))::uuid end, 't', '{{}}', 'UTC',
           '{{}}', '"once"', 'skip', case n % 20 when 0 then 'instance' else 'cluster' end, 'stored', n % 9 > 0,
           timestamptz '2026-01-01', timestamptz '2026-01-01', timestamptz '2026-01-01' + n * interval '1 second'
    from generate_series(1, {SCHEDULES}) n;
insert into tidemill.fires(schedule_id, fire_at, scope_key, tenant, job_id, outcome, created_at)
    select ('00000000-0000-0000-0002-' || lpad(n::text, 12, '0'))::uuid, timestamptz '2025-01-01' + h * interval '1 hour',
           case h % 3 when 0 then '' else 'node-' || h % 3 end, 'default', case h % 4 when 0 then gen_random_uuid() end,
           case h % 4 when 0 then 'fired' else 'skipped' end, timestamptz '2026-01-01'
    from generate_series(1, {FIRED}) n, generate_series(1, 100) h;
update tidemill.ready set limits = '["key/' || seq % 500 || '"]' where task in ('task-2', 'task-3');
insert into tidemill.uses(name, used, changed_at)
    select 'key/' || n, n % 3, timestamptz '2026-01-01' from generate_series(1, {ROWS}) n on conflict do nothing;
insert into tidemill.starts(name, begun_at, jobs)
    select 'key/' || n % 500, timestamptz '2026-01-01' + n * interval '1 second', 1 from generate_series(1, {ROWS}) n;
"""


class Verb(NamedTuple):
    """A verb of the store, the indexes it uses, and those of them it may read without a condition."""

    call: Callable[[Store], object]
    indexes: frozenset[str]
    unconditional: frozenset[str] = frozenset()
    tid_scan: bool = False


def a_claim(id: UUID) -> Claim:
    return Claim(
        id, "task-1", "queue-1", "tenant-1", 0, 1, 3, 0, 1, NOW, NOW, None, None, "[]", None, None, False, None,
        worker=WORKER,
    )  # fmt: skip


FAILED = Transition(JobState.FAILED, ExecutionState.FAILED, "no")


def ending(count: int, transition: Transition = COMPLETED) -> list[Finish]:
    return [Finish(a_claim(new_id()), transition) for _ in range(count)]


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


def count(store: Store, query: str, more: dict[str, list[object]]) -> object:
    """Run a part of a claim or a finish that has no effect without jobs."""
    return store._db.run(query, {"now": None}, TAKEN | more)  # type: ignore[attr-defined]


KEYS = some(*(f"{table}_pkey" for table in JOB_TABLES))

UNENDED = KEYS - some("history_pkey")

VERBS = {
    "claim": Verb(lambda s: s.claim(ClaimRequest(WORKER, LANES, 100)), some("ready_claim"), tid_scan=True),
    "claim of some tasks": Verb(
        lambda s: s.claim(ClaimRequest(WORKER, LANES, 100, tasks=["task-1", "task-2"])),
        some("ready_claim"),
        tid_scan=True,
    ),
    "step": Verb(
        lambda s: s.step(ending(20, FAILED), ClaimRequest(WORKER, LANES, 20)),
        some("ready_claim", "running_pkey"),
        tid_scan=True,
    ),
    "step of jobs that succeeded": Verb(
        lambda s: s.step(ending(20), ClaimRequest(WORKER, LANES, 20)),
        some("ready_claim", "running_pkey"),
        tid_scan=True,
    ),
    "deal": Verb(
        lambda s: s.deal(ending(20), DealRequest([Ask(WORKER, 10), Ask(new_id(), 10)], LANES)),
        some("ready_claim", "running_pkey", "workers_pkey"),
        tid_scan=True,
    ),
    "finish": Verb(lambda s: s.finish(ending(20)), some("running_pkey")),
    "start": Verb(lambda s: s.start([a_claim(new_id())]), some("running_pkey")),
    # The next due time is the first entry of the index.
    "promote": Verb(
        lambda s: s.promote(100, now=NOW + timedelta(minutes=1)),
        some("scheduled_due", "parked_due"),
        unconditional=some("scheduled_due", "parked_due"),
        tid_scan=True,
    ),
    # The query skips from lane to lane; only its first read starts at the beginning, and reads one entry.
    "lanes": Verb(lambda s: s.lanes(), some("ready_claim"), unconditional=some("ready_claim")),
    # Jobs of unregistered workers require a scan of the held jobs, which are few.
    "orphans": Verb(lambda s: s.orphans(100), some("running_worker"), unconditional=some("running_worker")),
    "held": Verb(lambda s: s.held(new_id()), some("running_worker")),
    "beat": Verb(
        lambda s: s.beat([new_id()], lease=timedelta(hours=1)),
        some("running_worker", "worker_pauses_pkey", "worker_scales_pkey"),
    ),
    "archivable": Verb(
        lambda s: due(s, ArchivePolicy("old", max_age=timedelta(hours=1), batch=100), NOW),
        some("history_finished") | KEYS,  # the keys find jobs that need a node of a flow
    ),
    "get": Verb(lambda s: s.get([new_id(), new_id()], tenant=ALL_TENANTS), KEYS),
    "get of a tenant": Verb(lambda s: s.get([new_id(), new_id()], tenant="tenant-1"), KEYS),
    "logs of a tenant": Verb(lambda s: s.logs(new_id(), tenant="tenant-1"), KEYS),
    # Pages are read in id order, and reading ends when the page is full.
    "jobs, the newest": Verb(lambda s: s.jobs(JobFilter(ALL_TENANTS)), KEYS, unconditional=KEYS),
    "jobs after a cursor": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS), after=encode_cursor(Sort.NEWEST, new_id())), KEYS
    ),
    "jobs of a task": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS, tasks=frozenset({"task-7"}))),
        KEYS | some("history_task"),
        unconditional=KEYS,
    ),
    "jobs of a definition": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS, definition_id=new_id())), KEYS | some("details_definition")
    ),
    "jobs of a schedule": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS, schedule_id=new_id())), KEYS | some("details_schedule")
    ),
    "jobs of a definition that have not ended": Verb(
        lambda s: s.count(JobFilter("tenant-1", states=LIVE, definition_id=new_id()), most=1),
        UNENDED | some("details_definition"),
    ),
    "jobs with a text": Verb(
        lambda s: s.jobs(
            JobFilter(ALL_TENANTS, text="0123456789"), after=encode_cursor(Sort.NEWEST, new_id())
        ),
        KEYS,
    ),
    "jobs that failed": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS, states=frozenset({JobState.FAILED}))),
        KEYS | some("history_troubled", "parked_state"),
        unconditional=KEYS,
    ),
    # Live jobs are not in the history, and unheld jobs are not in running: the plan omits those tables.
    "jobs that run": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS, states=frozenset({JobState.RUNNING}))),
        UNENDED | some("parked_state"),
        unconditional=UNENDED,
    ),
    "jobs that wait": Verb(
        lambda s: s.jobs(JobFilter(ALL_TENANTS, states=frozenset({JobState.PENDING}))),
        UNENDED - some("running_pkey") | some("parked_state"),
        unconditional=UNENDED - some("running_pkey"),
    ),
    "a text in jobs that wait": Verb(
        lambda s: s.jobs(
            JobFilter(ALL_TENANTS, states=frozenset({JobState.PENDING}), text="0123456789"),
            after=encode_cursor(Sort.NEWEST, new_id()),
        ),
        UNENDED - some("running_pkey") | some("parked_state"),
    ),
}


SOME = [new_id() for _ in range(20)]
STEPS = [Advance(id, 1, None, NOW, NOW) for id in SOME]
PLANNING = {
    # The next due time is the entry after the due ones.
    "due": Verb(
        lambda s: s.due(500, now=NOW),
        some("schedules_due", "definitions_pkey"),
        unconditional=some("schedules_due"),
    ),
    "advance": Verb(lambda s: s.advance(STEPS), some("schedules_pkey", "definitions_pkey")),
    "last fires": Verb(lambda s: s.last_fires(SOME, ""), some("fires_pkey")),
    "last fires of a node": Verb(lambda s: s.last_fires(SOME, "node-1"), some("fires_nodes")),
    "active jobs": Verb(lambda s: s.active_jobs(SOME), some("fires_jobs") | KEYS),
    "fires": Verb(lambda s: s.fires(SOME[0], tenant="default"), some("fires_pkey")),
    "purge_fires": Verb(
        lambda s: s.purge_fires(NOW, limit=100),
        some("fires_old", "fires_pkey", "fires_nodes", "schedules_pkey"),
    ),
    "expired": Verb(
        lambda s: s.expired(100, now=NOW), some("ready_expires", "scheduled_expires", "parked_expires") | KEYS
    ),
}
INSIGHT = {
    "lately": Verb(lambda s: s.lately(["task-1", "task-2"], tenant=ALL_TENANTS), some("history_task")),
}
VERBS |= PLANNING | INSIGHT

RULES = {"key": Rule("key", LimitKind.RATE, 9, timedelta(minutes=1))}
GATED = [
    Lane("queue-1", "tenant-1", 0, quota=50, gate=gate_of(names), limits=names)
    for names in [("key/1",), ("key/2",)]
]
TAKEN: dict[str, list[object]] = {"name": ["key/1", "key/2"], "jobs": [1, 1]}
LIMITS = {
    # The query skips from lane to lane, and starts after a given one.
    "gates": Verb(lambda s: s.gates(), some("ready_claim")),
    "claim within limits": Verb(
        lambda s: s.claim(ClaimRequest(WORKER, GATED, 100, rules=RULES)),
        some("ready_claim", "uses_pkey", "starts_name"),
    ),
    "count_uses": Verb(
        lambda s: count(s, "count_uses", {"full_until_at": [None, None]}),
        some("uses_pkey"),
    ),
    "note_starts": Verb(
        lambda s: count(s, "note_starts", {"window": [timedelta(minutes=1)] * 2}), some("starts_name")
    ),
    "uses of some names": Verb(lambda s: s.uses(RULES, ["key/1", "key/2"]), some("uses_pkey", "starts_name")),
    "change_breaker": Verb(lambda s: s.change_breaker("key/1", "a", "b"), some("uses_pkey")),
}
VERBS |= LIMITS


class Driven:
    """A store with one connection, so that the inspected statements are the ones it used."""

    def __init__(self, url: str) -> None:
        self.store = open_store(f"{url}?pool=1", migrate=True)
        self.driver: PostgresDriver = self.store._db  # type: ignore[attr-defined]

    def use(self, verb: Verb) -> set[str]:
        """Call a verb on empty tables until its statements are prepared; return their names."""
        before = self.uses()
        for _ in range(3):
            verb.call(self.store)
        return {name for name, count in self.uses().items() if count > before.get(name, 0)}

    def uses(self) -> dict[str, int]:
        """Return how often each prepared statement was planned. Verbs share statements."""
        with self.driver._pool.connection() as connection:
            rows = connection.execute(
                "select name, generic_plans + custom_plans from pg_prepared_statements", prepare=False
            ).fetchall()
        return dict(rows)

    def plan(self, statement: str) -> list[dict[str, Any]]:
        """Return all nodes of the current plan of a prepared statement; a generic plan ignores the parameters."""
        with self.driver._pool.connection() as connection:
            row = connection.execute(
                "select parameter_types::text[] from pg_prepared_statements where name = %s",
                (statement,),
                prepare=False,
            ).fetchone()
            assert row is not None
            nulls = sql.SQL(", ").join(sql.SQL("null::") + sql.SQL(kind) for kind in row[0])
            ask = sql.SQL("explain (format json) execute {}").format(sql.Identifier(statement))
            answer = connection.execute(
                ask + sql.SQL("(") + nulls + sql.SQL(")") if row[0] else ask, prepare=False
            )
            ((document,),) = answer.fetchone() or (([],),)
        return list(nodes(document["Plan"]))


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


class Access(NamedTuple):
    """How growing tables are read: by sequential scans, by indexes, by indexes without a condition, and by tuple id."""

    sequential: list[str]
    indexes: set[str]
    unconditional: set[str]
    by_tid: set[str]


def access_of(plan: list[dict[str, Any]]) -> Access:
    scans = [node for node in plan if node.get("Index Name", "").partition("_")[0] in TABLES]
    return Access(
        sequential=[
            node["Relation Name"]
            for node in plan
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES
        ],
        indexes={node["Index Name"] for node in scans},
        unconditional={node["Index Name"] for node in scans if "Index Cond" not in node},
        by_tid={node["Relation Name"] for node in plan if node["Node Type"] == "Tid Scan"},
    )


WHEN = ["planned on empty tables", "planned on full tables"]


@pytest.fixture(scope="module")
def accesses(postgres: TestPostgres) -> Iterator[dict[tuple[str, str], Access]]:
    """Return the access of every verb: after the tables were filled without new statistics, and after ANALYZE."""
    name = f"plans_{new_id().hex[-12:]}"
    url = postgres.create_database(name)
    driven = Driven(url)
    try:
        statements: dict[str, set[str]] = {}
        for title, verb in VERBS.items():
            statements[title] = driven.use(verb)
        with psycopg.connect(url, autocommit=True) as raw:
            raw.execute("alter table tidemill.ready set (autovacuum_enabled = off)")
            access = {}
            raw.execute(SEED)
            for when in WHEN:
                for title in VERBS:
                    plan = [node for statement in statements[title] for node in driven.plan(statement)]
                    access[when, title] = access_of(plan)
                raw.execute("analyze")
        yield access
    finally:
        driven.store.close()
        postgres.drop_database(name)


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("title", VERBS)
def test_no_growing_table_is_scanned_sequentially(
    accesses: dict[tuple[str, str], Access], title: str, when: str
) -> None:
    assert accesses[when, title].sequential == []


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("title", VERBS)
def test_each_query_uses_its_index(accesses: dict[tuple[str, str], Access], title: str, when: str) -> None:
    assert accesses[when, title].indexes
    assert accesses[when, title].indexes <= VERBS[title].indexes


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("title", VERBS)
def test_indexes_are_read_with_a_condition(
    accesses: dict[tuple[str, str], Access], title: str, when: str
) -> None:
    assert accesses[when, title].unconditional <= VERBS[title].unconditional


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("title", [title for title, verb in VERBS.items() if verb.tid_scan])
def test_chosen_rows_are_deleted_by_tuple_id(
    accesses: dict[tuple[str, str], Access], title: str, when: str
) -> None:
    assert accesses[when, title].by_tid & {"ready", "scheduled"}


def test_a_search_is_planned_with_its_values(fresh_postgres_url: str) -> None:
    """One plan for all tasks would read the whole history for a task that has few jobs."""
    driven = Driven(fresh_postgres_url)
    for tasks in ({"rare"}, {"frequent"}):
        driven.store.jobs(JobFilter("*", tasks=frozenset(tasks)))
        driven.store.count(JobFilter("*", tasks=frozenset(tasks)))
    driven.store.jobs(JobFilter("*"))
    with driven.driver._pool.connection() as connection:
        rows = connection.execute(
            "select statement like '%task = $%', generic_plans, custom_plans from pg_prepared_statements"
            " where statement like '%from tidemill.jobs%'",
            prepare=False,
        ).fetchall()
    driven.store.close()
    assert sorted(rows) == [(False, 1, 0), (True, 0, 2), (True, 0, 2)]
