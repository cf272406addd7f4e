"""Tests that SQLite answers frequent queries by index."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.stores.sqlite_kit import open_file, writer_of

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.schedules import Fired, ScheduleRow
from tidemill.ids import new_id
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.sqlite.statements import program

pytestmark = pytest.mark.long

JOBS, SCHEDULES = 50_000, 100_000
BIG = ("ready", "scheduled", "history", "jobs")


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Open a file with many rows in every table."""
    store = open_file(tmp_path_factory.mktemp("plans") / "jobs.db", synchronous="normal")
    worker = new_id()
    store.register(Worker(worker, "w"), lease=timedelta(hours=1))
    for delay in (None, timedelta(hours=1)):
        for start in range(0, JOBS, 5000):
            store.enqueue(
                [
                    NewJob(new_id(), f"t{n % 20}", queue=f"q{n % 3}", priority=n % 4, delay=delay)
                    for n in range(start, start + 5000)
                ]
            )
    for _ in range(4):
        claims = store.claim(ClaimRequest(worker, store.lanes(), 5000))
        store.finish([Finish(claim, COMPLETED) for claim in claims])
    store.claim(ClaimRequest(worker, store.lanes(), 2000))
    yield writer_of(store)
    store.close()


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Open a file with many schedules and fires, and with statistics."""
    store = open_file(tmp_path_factory.mktemp("planned") / "jobs.db", synchronous="normal")
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    ids = [new_id() for _ in range(SCHEDULES)]
    for start in range(0, SCHEDULES, 10_000):
        store.put_schedules(
            [
                ScheduleRow(
                    id, f"{id}", "t", {}, next_fire_at=begin + timedelta(seconds=n), enabled=n % 9 > 0
                )
                for n, id in enumerate(ids[start : start + 10_000], start)
            ]
        )
    for node in ("", "n1", "n2"):
        store.note_fires(
            [
                Fired(id, begin + timedelta(hours=hour), node, job_id=None if hour % 3 else id)
                for id in ids[:100]
                for hour in range(100)
            ]
        )
    writer_of(store).execute("analyze")
    yield writer_of(store)
    store.close()


def plan(writer: sqlite3.Connection, name: str, *present: str) -> list[str]:
    """Return SQLite's plan for every statement of a query, as the driver runs it."""
    steps: list[str] = []
    for statement in program(load("sqlite")[name], frozenset(present)).statements:
        rows = writer.execute(f"explain query plan {statement.sql}", [None] * len(statement.arguments))
        steps += [row[3] for row in rows]
    return steps


def scanned(steps: list[str]) -> list[str]:
    """Return the job tables that are scanned completely."""
    names = "|".join(BIG)
    return [step for step in steps if re.search(rf"^SCAN (tidemill_({names})|[jr]\b)(?! USING)", step)]


@pytest.mark.parametrize("present", [(), ("tasks",)])
def test_a_claim_reads_its_lane_from_the_watermark(
    writer: sqlite3.Connection, present: tuple[str, ...]
) -> None:
    steps = plan(writer, "claim", *present)
    lane = "(queue=? AND tenant=? AND priority=? AND gate=? AND rowid>?)"
    assert f"SEARCH tidemill_ready USING INDEX tidemill_ready_claim {lane}" in steps
    assert scanned(steps) == []
    assert not any("TEMP B-TREE" in step for step in steps)


@pytest.mark.parametrize(("name", "ways"), [("lanes", 3), ("gates", 8)])
def test_lanes_are_found_by_a_skip_scan(writer: sqlite3.Connection, name: str, ways: int) -> None:
    steps = plan(writer, name)
    leaps = [step for step in steps if step.startswith("SEARCH n USING INDEX tidemill_ready_claim")]
    assert len(leaps) == ways
    assert scanned(steps) == []
    assert not any("TEMP B-TREE" in step for step in steps)


def test_promote_reads_the_earliest_jobs_from_both_indexes(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "promote")
    assert any(
        "tidemill_scheduled USING COVERING INDEX tidemill_scheduled_due (run_at<?)" in step for step in steps
    )
    assert any("tidemill_parked USING INDEX tidemill_parked_due (run_at<?)" in step for step in steps)
    assert scanned(steps) == []


def test_the_next_due_time_is_the_first_entry_of_both_indexes(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "promote")
    assert "SEARCH tidemill_scheduled USING COVERING INDEX tidemill_scheduled_due" in steps
    assert "SEARCH tidemill_parked USING INDEX tidemill_parked_due" in steps


@pytest.mark.parametrize("name", ["held", "beat"])
def test_held_jobs_are_found_by_their_worker(writer: sqlite3.Connection, name: str) -> None:
    steps = plan(writer, name)
    assert "SEARCH r USING INDEX tidemill_running_worker (worker=?)" in steps
    assert scanned(steps) == []


def test_orphans_are_found_by_their_workers(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "orphans")
    assert "SEARCH r USING INDEX tidemill_running_worker (worker=?)" in steps
    assert "SEARCH r USING COVERING INDEX tidemill_running_worker (worker>?)" in steps
    assert not any(step.startswith("SCAN tidemill_running") or step == "SCAN r" for step in steps)


@pytest.mark.parametrize("name", ["finish", "start", "report", "log", "enqueue", "move", "delete", "forget"])
def test_batches_find_their_jobs_by_id(writer: sqlite3.Connection, name: str) -> None:
    steps = plan(writer, name, "tenant")
    assert scanned(steps) == []
    assert not any(
        re.search(r"^SCAN tidemill_(running|uniques|details|executions|logs)\b", step) for step in steps
    )


@pytest.mark.parametrize("present", [(), ("tasks",), ("tenants", "exclude")])
def test_archivable_jobs_are_read_in_the_order_of_their_end(
    writer: sqlite3.Connection, present: tuple[str, ...]
) -> None:
    steps = plan(writer, "archivable", "until_at", *present)
    # The order of the end includes the id, and some versions compare both in the index.
    search = "SEARCH h USING INDEX tidemill_history_finished "
    assert {search + "(finished_at<?)", search + "((finished_at,id)<(?,?))"} & set(steps)
    assert not any("TEMP B-TREE" in step for step in steps)


@pytest.mark.parametrize("present", [(), ("tenant",)])
def test_get_finds_jobs_by_id(writer: sqlite3.Connection, present: tuple[str, ...]) -> None:
    steps = plan(writer, "get", *present)
    assert scanned(steps) == []
    assert sum("(id=?)" in step for step in steps) == 6  # completed and other ended jobs are separate parts


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_a_page_is_merged_from_the_tables_in_id_order(writer: sqlite3.Connection, order: str) -> None:
    steps = plan(writer, "jobs", order, "tenant", "states", "below")
    assert "MERGE (UNION ALL)" in steps
    assert scanned(steps) == []
    assert not any("TEMP B-TREE" in step for step in steps)


def test_the_jobs_of_a_queue_are_not_sorted_unless_they_are_rare(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "jobs", "newest", "queues", "task")
    assert "MERGE (UNION ALL)" in steps
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps)
    rare = plan(writer, "jobs", "newest", "queues", "task", "rare")
    assert any("tidemill_ready_claim" in step for step in rare)


@pytest.mark.parametrize(
    "present",
    [
        ("below",),
        ("text", "in_args", "digits", "floor"),
        ("text", "tenant", "states", "below", "floor"),
        ("id_suffix", "states", "floor"),
    ],
)
def test_a_text_search_reads_jobs_in_id_order(writer: sqlite3.Connection, present: tuple[str, ...]) -> None:
    steps = plan(writer, "jobs" if "floor" in present else "looked", "newest", *present)
    assert "MERGE (UNION ALL)" in steps
    assert scanned(steps) == []
    assert not any("TEMP B-TREE" in step for step in steps)


def test_a_log_is_read_from_its_cursor(writer: sqlite3.Connection) -> None:
    for present in (("oldest",), ("oldest", "tenant"), ("newest", "before", "tenant")):
        steps = plan(writer, "logs", *present)
        assert any(
            step.startswith("SEARCH l USING INDEX tidemill_logs_job (job_id=? AND rowid>?") for step in steps
        )
        assert scanned(steps) == []
        assert not any("TEMP B-TREE" in step for step in steps)


# ------------------------------------------------------------------------------------------------ operator queries


@pytest.mark.parametrize("name", ["ended_by", "ended_series"])
def test_rollups_are_read_by_time(writer: sqlite3.Connection, name: str) -> None:
    steps = plan(writer, name)
    assert any("tidemill_rollups USING PRIMARY KEY (scope=? AND at>?" in step for step in steps)


@pytest.mark.parametrize("name", ["series_times", "times_by"])
def test_times_are_read_by_time(writer: sqlite3.Connection, name: str) -> None:
    steps = plan(writer, name)
    assert any("tidemill_rollup_times USING PRIMARY KEY (scope=? AND at>?" in step for step in steps)


@pytest.mark.parametrize("name", ["failure_groups", "failure_series", "failure_counts"])
def test_failures_are_read_by_time_or_group(writer: sqlite3.Connection, name: str) -> None:
    steps = plan(writer, name)
    assert any("INDEX tidemill_failures_" in step for step in steps)
    assert [step for step in scanned(steps) if "tidemill_failures" in step] == []


def test_the_latest_jobs_of_a_task_are_found_by_task(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "lately", "tenant")
    assert "SEARCH n USING COVERING INDEX tidemill_history_task (task=?)" in steps
    assert scanned(steps) == []


# ------------------------------------------------------------------------------------------ schedules and fires


def test_due_schedules_are_at_the_beginning_of_their_index(planned: sqlite3.Connection) -> None:
    steps = plan(planned, "due")
    assert "SEARCH s USING INDEX tidemill_schedules_due (next_fire_at<?)" in steps
    assert any(
        step.startswith("SEARCH s USING INDEX tidemill_schedules_due (next_fire_at>?)") for step in steps
    )
    assert not any(step.startswith("SCAN s") for step in steps)
    # Only the due schedules themselves are sorted.
    assert sum("TEMP B-TREE" in step for step in steps) <= 1


def test_active_jobs_are_found_by_fires_with_a_job(planned: sqlite3.Connection) -> None:
    steps = plan(planned, "active_jobs")
    assert "SEARCH n USING INDEX tidemill_fires_jobs (schedule_id=?)" in steps
    assert "SEARCH f USING INDEX tidemill_fires_jobs (schedule_id=? AND fire_at>?)" in steps
    assert not any(re.match(r"SCAN (tidemill_|[nrsph]\b)", step) for step in steps)


def test_the_last_cluster_fires_are_at_the_end_of_the_primary_key(planned: sqlite3.Connection) -> None:
    steps = plan(planned, "last_fires")
    assert "SEARCH f USING PRIMARY KEY (schedule_id=?)" in steps
    assert not any(step.startswith("SCAN f") or "TEMP B-TREE" in step for step in steps)


def test_the_last_fires_of_a_node_are_found_by_node(planned: sqlite3.Connection) -> None:
    steps = plan(planned, "last_fires", "node")
    assert "SEARCH f USING COVERING INDEX tidemill_fires_nodes (schedule_id=? AND scope_key=?)" in steps
    assert not any(step.startswith("SCAN f") or "TEMP B-TREE" in step for step in steps)


def test_old_fires_are_found_by_fire_time(planned: sqlite3.Connection) -> None:
    steps = plan(planned, "purge_fires")
    assert any(
        step.startswith("SEARCH f USING COVERING INDEX tidemill_fires_old (fire_at<?)") for step in steps
    )
    assert not any(step.startswith(("SCAN f", "SCAN n", "SCAN s")) for step in steps)


def test_expired_jobs_are_found_in_a_partial_index(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "expired")
    for table in ("ready", "scheduled", "parked"):
        index = f"tidemill_{table}_expires (expires_at<?)"
        assert any(step.startswith(f"SEARCH tidemill_{table} USING") and index in step for step in steps), (
            table
        )
    assert scanned(steps) == []


@pytest.mark.parametrize("name", ["advance", "note_fires", "put_schedules", "enable_definitions"])
def test_batches_find_schedules_by_id(planned: sqlite3.Connection, name: str) -> None:
    steps = plan(planned, name, "tenant")
    assert not any(re.match(r"SCAN (tidemill_(schedules|fires|definitions)|[sod]\b)", step) for step in steps)


def test_initially_waiting_jobs_add_no_cost_for_other_jobs(writer: sqlite3.Connection) -> None:
    enqueue = load("sqlite")["enqueue"]
    plain, parking = (program(enqueue, frozenset(flags)).statements for flags in ([], ["parks"]))
    assert len(parking) == len(plain) + 1
    assert not any("waiting" in statement.sql or "tidemill_parked(" in statement.sql for statement in plain)


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("open_uses", ()),
        ("lock_uses", ()),
        ("count_uses", ()),
        ("starts", ()),
        ("note_starts", ()),
        ("uses", ("names",)),
        ("change_breaker", ()),
    ],
)
def test_counters_are_found_by_name(writer: sqlite3.Connection, name: str, present: tuple[str, ...]) -> None:
    steps = plan(writer, name, *present)
    assert not any(re.match(r"SCAN (tidemill_(uses|starts)|[us]\b)", step) for step in steps)


def test_starts_are_read_from_the_beginning_of_their_window(writer: sqlite3.Connection) -> None:
    steps = plan(writer, "starts")
    assert any(
        re.match(r"SEARCH s USING INDEX tidemill_starts_name \(name=\? AND begun_at>\?\)", step)
        for step in steps
    )
