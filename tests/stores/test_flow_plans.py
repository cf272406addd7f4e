"""Tests that every frequent statement of flows finds its rows by an index, whatever the tables hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.driver import _PLANNING
from tidemill.stores.sql.postgres.statements import Statements

ROWS = 20_000
_COMMON = "id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, detailed, args"
_VALUES = "select gen_random_uuid(), 't', 'q', 'task', 0, 1, 3, 0, 1, now(), now(), true, '[]'"
SEED = f"""
insert into tidemill.parked({_COMMON}, until_claimed, state, wakes)
  {_VALUES}, false, 'waiting', false from generate_series(1, {ROWS});
insert into tidemill.history({_COMMON}, state, execution, finished_at)
  {_VALUES}, 'completed', 'succeeded', now() from generate_series(1, {ROWS});
insert into tidemill.running({_COMMON}, state, worker, claimed_at, started_at)
  {_VALUES}, 'running', gen_random_uuid(), now(), now() from generate_series(1, 2000);
insert into tidemill.joins(id, shard, remaining, spare, total, required) select id, 0, 1, 0, 1, 1 from tidemill.parked;
insert into tidemill.details(id, tenant, group_id, group_shard, position)
  select id, 't', gen_random_uuid(), 0, 0 from tidemill.history;
insert into tidemill.dependencies(job_id, needs_id, created_at) select id, gen_random_uuid(), now() from tidemill.parked;
insert into tidemill.flows(id, tenant, kind, name, state, rules, created_at)
  select gen_random_uuid(), 't', 'flow', 'f', 'running', '{{}}', now() from generate_series(1, {ROWS});
insert into tidemill.unreachable_jobs select id, 'r', now() from tidemill.parked;
"""
TABLES = {
    *("ready", "scheduled", "parked", "running", "history", "joins", "details", "dependencies", "flows"),
    "unreachable_jobs",
}
FLAGS = {"finish_tied": [(), ("releases",), ("counted",), ("light",), ("releases", "counted", "light")]}
STATEMENTS = [
    (name, flags)
    for name in (
        *("finish_tied", "lock_ties", "lock_ends", "count_ends", "release_jobs", "input_results"),
        *("group_results", "receivers", "record_steps"),
    )
    for flags in FLAGS.get(name, [()])
]


@pytest.fixture(scope="module", params=["empty", "full", "analyzed"])
def connection(postgres: Any, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """Connect as the driver does, to a database without rows, with rows, or with rows and statistics."""
    name = f"flow_plans_{request.param}"
    url = postgres.create_database(name)
    store = open_store(url, migrate=True)
    store.check()
    store.close()
    options = " ".join(f"-c {key}={value}" for key, value in _PLANNING.items())
    try:
        with psycopg.connect(url, autocommit=True, options=options) as connection:
            if request.param != "empty":
                connection.execute(SEED)
            if request.param == "analyzed":
                connection.execute("analyze")
            yield connection
    finally:
        postgres.drop_database(name)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize(("name", "flags"), STATEMENTS)
def test_a_statement_of_flows_finds_its_rows_by_an_index(
    connection: psycopg.Connection[Any], name: str, flags: tuple[str, ...]
) -> None:
    statement = Statements("tidemill").get(name, {}, flags)
    # Through libpq, because the statement has numbered parameters.
    result = connection.pgconn.exec_(b"explain (generic_plan, format json) " + statement.numbered)
    assert result.error_message == b"", result.error_message
    value = result.get_value(0, 0)
    assert value is not None
    (found,) = json.loads(value)
    for node in nodes(found["Plan"]):
        if node.get("Relation Name") in TABLES and node["Node Type"] != "ModifyTable":
            assert node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan"), (
                node
            )
            assert "Index Cond" in node or node["Node Type"] == "Tid Scan", node
