"""The yardsticks: the bare statements, in the same run as the compared system.

PostgreSQL: one statement per batch moves rows from ready to running to history, with no-op coroutines and two connections.
SQLite: the same columns and indexes, one transaction per batch, by the standard library alone. A temporary table replaces the
arrays of PostgreSQL, and the batch is moved from it at once; ``each`` moves it job by job instead, as most programs do, which takes
half as long again.
Enqueueing: one insert and commit for each job, or 1,000 rows at a time (COPY, or ``executemany``), into the same table.
There are no limits, fairness, retries, heartbeats, keys or hooks: a product does more, so this is an upper bound.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import asyncpg
import orjson
import uvloop

from tidemill.ids import new_id

ARGS = '{"user_id": 123, "email": "a@example.com"}'
_ROW = "id, task, queue, tenant, priority, due_at, attempt, args, created_at"
_SCHEMA = """
drop schema if exists yardstick cascade; create schema yardstick; set search_path = yardstick;
create table ready(id uuid primary key, seq bigint generated always as identity, task int, queue int, tenant int,
  priority smallint, due_at timestamptz default now(), attempt smallint default 1, args jsonb,
  created_at timestamptz default now());
create index on ready(queue, priority desc, seq);
create table running(id uuid primary key, task int, queue int, tenant int, priority smallint, due_at timestamptz,
  attempt smallint, args jsonb, created_at timestamptz, worker int, state smallint, claimed_at timestamptz);
create index on running(worker);
create table history(id uuid primary key, task int, queue int, tenant int, priority smallint, due_at timestamptz,
  attempt smallint, args jsonb, created_at timestamptz, worker int, state smallint, claimed_at timestamptz,
  started_at timestamptz, finished_at timestamptz, result jsonb);
create index on history(task, finished_at);
"""
_STEP = f"""
with ended as (
  delete from running r using unnest($4::uuid[], $5::timestamptz[], $6::timestamptz[], $7::jsonb[]) x(id, s, e, result)
  where r.id = x.id and r.worker = $3
  returning r.id, task, queue, tenant, priority, due_at, attempt, args, created_at, worker, claimed_at, s, e, x.result),
kept as (
  insert into history({_ROW}, worker, claimed_at, started_at, finished_at, result, state)
  select {_ROW}, worker, claimed_at, s, e, result, 3 from ended),
got as (
  delete from ready where ctid = any(array(
    select ctid from ready where queue = 1 and priority = 0 and seq >= $1 order by seq limit $2 for update skip locked))
  returning *),
begun as (
  insert into running({_ROW}, worker, state, claimed_at) select {_ROW}, $3, 2, now() from got)
select id, seq, args::text from got"""


async def _noop(**_: object) -> dict[str, bool]:
    return {"ok": True}


async def _fill(url: str, jobs: int) -> None:
    db = await asyncpg.connect(url)
    await db.execute(_SCHEMA)
    for start in range(0, jobs, 5_000):
        await _copy(db, min(5_000, jobs - start))
    await db.execute("vacuum analyze yardstick.ready")
    await db.execute("checkpoint")
    await db.close()


async def _copy(db: asyncpg.Connection, count: int) -> None:
    await db.copy_records_to_table(
        "ready",
        schema_name="yardstick",
        columns=["id", "task", "queue", "tenant", "priority", "args"],
        records=[(new_id(), 1, 1, 1, 0, ARGS) for _ in range(count)],
    )


async def _drain(url: str, batch: int) -> tuple[float, float]:
    """Return the time of the first and last move; all processes of a machine share the clock."""
    loop, ended, low, last = asyncio.get_running_loop(), [], 0, 0.0
    worker = os.getpid()

    async def run(id_: UUID, args: str) -> None:
        start = dt.datetime.now(dt.UTC)
        result = await _noop(**orjson.loads(args))
        ended.append((id_, start, dt.datetime.now(dt.UTC), orjson.dumps(result).decode()))

    async def pump(step: asyncpg.prepared_stmt.PreparedStatement) -> None:
        nonlocal low, last
        idle = 0
        while idle < 3:
            sent, ended[:] = list(ended), []
            columns = list(map(list, zip(*sent, strict=True))) if sent else [[], [], [], []]
            rows = await step.fetch(low, batch, worker, *columns)
            if sent:
                last = time.monotonic()
            if rows:
                low = max(low, max(row[1] for row in rows) - 5000)
                for row in rows:
                    loop.create_task(run(row[0], row[2]))
                await asyncio.sleep(0)
            idle = 0 if rows or ended else idle + 1

    dbs = [await asyncpg.connect(url, server_settings={"search_path": "yardstick"}) for _ in range(2)]
    steps = [await connection.prepare(_STEP) for connection in dbs]
    first = time.monotonic()
    await asyncio.gather(*map(pump, steps))
    for connection in dbs:
        await connection.close()
    return first, last


async def _check(url: str, jobs: int) -> None:
    db = await asyncpg.connect(url)
    kept = await db.fetchval("select count(*) from yardstick.history where result is not null")
    assert kept == jobs, (kept, jobs)
    await db.execute("drop schema yardstick cascade")
    await db.close()


def _drain_together(url: str, batch: int, processes: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "bench.yardstick", url, str(batch)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    outputs = [process.communicate(timeout=300)[0] for process in started]
    spans = [tuple(map(float, output.split())) for output in outputs]
    return min(first for first, _ in spans), max(last for _, last in spans)


def postgres(url: str, jobs: int, batch: int = 500, processes: int = 1) -> float:
    """Return jobs per second of the bare statement, in this process or in several others."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_fill(url, jobs))
        if processes == 1:
            first, last = runner.run(_drain(url, batch))
        else:
            first, last = _drain_together(url, batch, processes)
        runner.run(_check(url, jobs))
    return jobs / (last - first)


async def _enqueue(url: str, seconds: float, jobs: int) -> float:
    db = await asyncpg.connect(url)
    await db.execute(_SCHEMA)
    insert = await db.prepare(
        "insert into yardstick.ready(id, task, queue, tenant, priority, args) values ($1, 1, 1, 1, 0, $2)"
    )
    await insert.fetch(new_id(), ARGS)
    done, begun = 0, time.perf_counter()
    while done < jobs if jobs else time.perf_counter() - begun < seconds:
        if jobs:
            await _copy(db, 1_000)
        else:
            await insert.fetch(new_id(), ARGS)
        done += 1_000 if jobs else 1
    rate = done / (time.perf_counter() - begun)
    await db.execute("drop schema yardstick cascade")
    await db.close()
    return rate


def enqueue_postgres(url: str, *, seconds: float = 0.0, jobs: int = 0) -> float:
    """Return bare rows per second: one by one for a time, or a number of jobs 1,000 at a time."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_enqueue(url, seconds, jobs))


_COLUMNS = """id blob, task integer, queue integer, tenant integer, priority integer, due_at integer, attempt integer,
  args text, created_at integer"""
_SQLITE = f"""
pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536; pragma wal_autocheckpoint = 4000;
pragma temp_store = memory; pragma secure_delete = fast;
create table ready(seq integer primary key, {_COLUMNS}, unique(id));
create index ready_claim on ready(queue, priority desc, seq);
create table running({_COLUMNS}, worker integer, state integer, claimed_at integer, primary key(id)) without rowid;
create index running_worker on running(worker);
create table history({_COLUMNS}, worker integer, state integer, claimed_at integer, started_at integer, finished_at integer,
  result text, primary key(id));
create index history_task on history(task, finished_at);
create temp table ended(id blob, s integer, e integer, result text);
"""
_LANE = "from ready where queue = 1 and priority = 0 and seq >= ? order by seq limit ?"
_DELETE = "delete from running where id in (select id from ended) and worker = ?"
_END_EACH = f"""insert into history({_ROW}, worker, claimed_at, started_at, finished_at, result, state)
select {_ROW}, worker, claimed_at, ?, ?, ?, 3 from running where id = ? and worker = ?"""
_END = f"""insert into history({_ROW}, worker, claimed_at, started_at, finished_at, result, state)
select r.{_ROW.replace(", ", ", r.")}, r.worker, r.claimed_at, x.s, x.e, x.result, 3
from ended x cross join running r on r.id = x.id and r.worker = ?"""


def enqueue_sqlite(folder: Path, *, seconds: float = 0.0, jobs: int = 0) -> float:
    """Return bare rows per second on SQLite, as ``enqueue_postgres`` does."""
    db = sqlite3.connect(folder / "yardstick.db", isolation_level=None)
    db.executescript(_SQLITE)
    insert = f"insert into ready({_ROW}) values (?, 1, 1, 1, 0, 0, 1, ?, 0)"
    done, begun = 0, time.perf_counter()
    while done < jobs if jobs else time.perf_counter() - begun < seconds:
        if jobs:
            db.execute("begin immediate")
            db.executemany(insert, ((new_id().bytes, ARGS) for _ in range(1_000)))
            db.execute("commit")
        else:
            db.execute(insert, (new_id().bytes, ARGS))
        done += 1_000 if jobs else 1
    rate = done / (time.perf_counter() - begun)
    db.close()
    return rate


def sqlite(folder: Path, jobs: int, batch: int = 500, *, each: bool = False) -> float:
    """Return jobs per second of the bare transaction, with durable commits."""
    db = sqlite3.connect(folder / "yardstick.db", isolation_level=None)
    db.executescript(_SQLITE)
    db.execute("begin immediate")
    db.executemany(
        f"insert into ready({_ROW}) values (?, 1, 1, 1, 0, 0, 1, ?, 0)",
        ((new_id().bytes, ARGS) for _ in range(jobs)),
    )
    db.execute("commit")
    worker, low, done = 1, 0, 0
    held: list[tuple[bytes, int, str]] = []
    begun = time.perf_counter()
    while done < jobs:
        now = time.time_ns() // 1_000
        # A bytearray, because sqlite3 looks for an adapter when it is given bytes.
        ended = [(now, now, '{"ok": true}', bytearray(id_), worker) for id_, _, _ in held]
        db.execute("begin immediate")
        if each:
            db.executemany(_END_EACH, ended)
            db.executemany("delete from running where id = ? and worker = ?", (job[3:] for job in ended))
        else:
            db.execute("delete from ended")
            db.executemany(
                "insert into ended(s, e, result, id) values (?, ?, ?, ?)", (job[:4] for job in ended)
            )
            db.execute(_END, (worker,))
            db.execute(_DELETE, (worker,))
        done += len(held)
        db.execute(
            f"insert into running({_ROW}, worker, state, claimed_at) select {_ROW}, ?, 2, ? {_LANE}",
            (worker, now, low, batch),
        )
        held = db.execute(
            f"delete from ready where seq in (select seq {_LANE}) returning id, seq, args", (low, batch)
        ).fetchall()
        db.execute("commit")
        low = held[-1][1] if held else low
    seconds = time.perf_counter() - begun
    (kept,) = db.execute("select count(*) from history where result is not null").fetchone()
    assert kept == jobs, (kept, jobs)
    db.close()
    return jobs / seconds


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as one_of_many:
        print(*one_of_many.run(_drain(sys.argv[1], int(sys.argv[2]))))
