"""Tests that the work of statements on PostgreSQL is proportional to their input."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import ClientCursor

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import LimitKind, Rule
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.driver import QueryCall
from tidemill.stores.sql.lifecycle import _enqueued, finish_call
from tidemill.stores.sql.postgres.driver import _PLANNING
from tidemill.stores.sql.postgres.enqueue import columns_of, common_values
from tidemill.stores.sql.postgres.statements import Statements
from tidemill.stores.sql.postgres.store import _handoff_step, counted_claim

GATES = 300
RULES = {"key": Rule("key", LimitKind.CONCURRENCY, 1)}


@pytest.fixture
def store(migrated_postgres_url: str) -> Iterator[Store]:
    made = open_store(migrated_postgres_url)
    made.put_rules(list(RULES.values()))
    made.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(GATES)])
    yield made
    made.close()


def request_of(store: Store) -> ClaimRequest:
    worker = store.register(Worker(new_id(), "here"), lease=timedelta(hours=1))
    return ClaimRequest(worker.id, store.gates(limit=GATES), GATES, ["work"], rules=RULES)


def work(url: str, call: QueryCall, fill: str = "select") -> int:
    """Return the rows that all plan nodes read, for a plan made before the tables were filled."""
    statement = Statements("tidemill").get(call.name, call.takes, call.flags)
    given: dict[str, Any] = {**call.takes, **(call.items or {})}
    values = [given.get(name) for name, _ in statement.values + statement.columns]
    with psycopg.connect(url, cursor_factory=ClientCursor) as connection:
        connection.execute("analyze")
        for name, value in _PLANNING.items():
            connection.execute("select set_config(%s, %s, false)", (name, value))
        kinds = [connection.execute("select format_type(%s, null)", (oid,)) for oid in statement.types]
        names = ", ".join(name for answer in kinds for (name,) in answer)
        connection.execute(f"prepare it({names}) as {statement.numbered.decode()}")
        execute = f"execute it({', '.join(['%s'] * len(values))})"
        connection.execute(f"explain {execute}", values)
        connection.execute(fill)
        row = connection.execute(f"explain (analyze, format json) {execute}", values).fetchone()
        connection.rollback()
        assert row is not None
        return sum(map(_rows, _nodes(row[0][0]["Plan"])))


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _rows(node: dict[str, Any]) -> int:
    removed: float = node.get("Rows Removed by Join Filter", 0) + node.get("Rows Removed by Filter", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def test_a_claim_reads_each_of_many_limit_sets_a_few_times(store: Store, migrated_postgres_url: str) -> None:
    counted = counted_claim(request_of(store), None)
    assert counted is not None
    fill = f"insert into tidemill.uses(name, changed_at) select 'key/' || n, now() from generate_series(0, {GATES - 1}) n"
    assert GATES < work(migrated_postgres_url, counted.call, fill) < 100 * GATES


def test_finishes_read_each_of_many_limit_sets_a_few_times(store: Store, migrated_postgres_url: str) -> None:
    request = request_of(store)
    finishes = [Finish(claim, COMPLETED, "null") for claim in store.claim(request)]
    assert len(finishes) == GATES
    given_back = finish_call(finishes, None, "counted")
    handoff_request = request._replace(lanes=[lane._replace(quota=1) for lane in request.lanes], handoff=True)
    counted = counted_claim(handoff_request, None)
    assert counted is not None
    taken_over = _handoff_step(finishes, handoff_request, counted)
    assert taken_over is not None
    for call in (given_back, taken_over):
        assert GATES < work(migrated_postgres_url, call) < 100 * GATES


def test_counters_are_created_without_reading_the_others(migrated_postgres_url: str) -> None:
    call = QueryCall("open_uses", {"now": None, "names": [f"key/{n}" for n in range(4990, 5010)]})
    fill = "insert into tidemill.uses(name, changed_at) select 'key/' || n, now() from generate_series(1, 5000) n"
    assert 0 < work(migrated_postgres_url, call, fill) < 1000


def test_a_counter_update_changes_no_index(store: Store, migrated_postgres_url: str) -> None:
    """No index contains the counter, so an update writes no index entry."""
    with psycopg.connect(migrated_postgres_url) as connection:
        rows = connection.execute(
            "select pg_get_indexdef(indexrelid) from pg_index where indrelid = 'tidemill.uses'::regclass"
        ).fetchall()
    assert rows
    assert not [text for (text,) in rows if "used" in text or "changed_at" in text]


def test_a_batch_is_found_by_its_ids(store: Store, migrated_postgres_url: str) -> None:
    jobs = [NewJob(new_id(), "work") for _ in range(20)]
    calls = [
        QueryCall("enqueue_alike", common_values(jobs[0], None), columns_of(jobs)),
        QueryCall("enqueue", {"now": None}, *_enqueued(jobs)),
    ]
    fill = """
      insert into tidemill.ready(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at,
                                 until_claimed, detailed, args)
      select gen_random_uuid(), 't', 'q', 'other', 0, 0, 1, 0, 0, now(), now(), false, false, '{}' from generate_series(1, 5000)"""
    for call in calls:
        assert 0 < work(migrated_postgres_url, call, fill) < 2000
