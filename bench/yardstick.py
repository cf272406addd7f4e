"""The yardsticks: the bare statement and nothing else, in the same run as what it is compared with.

PostgreSQL: rows move ready → running → history by one statement a batch, no-op coroutines between, two connections.
SQLite: the same columns and indexes, one transaction a batch, the standard library and no more. What PostgreSQL is given as
arrays goes into a temporary table, from where the batch is moved as a whole; ``each`` moves it job by job instead, which is what
most programs do and takes half as long again.
No limits, fairness, retries, heartbeats, keys or hooks: a product does more, so this is a bound, not a rival.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import sqlite3
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


async def _postgres(url: str, jobs: int, batch: int) -> float:
    db = await asyncpg.connect(url)
    await db.execute(_SCHEMA)
    for start in range(0, jobs, 5_000):
        await db.copy_records_to_table(
            "ready",
            schema_name="yardstick",
            columns=["id", "task", "queue", "tenant", "priority", "args"],
            records=[(new_id(), 1, 1, 1, 0, ARGS) for _ in range(min(5_000, jobs - start))],
        )
    await db.execute("vacuum analyze yardstick.ready")
    await db.execute("checkpoint")
    loop, ended, low, last = asyncio.get_running_loop(), [], 0, 0.0

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
            rows = await step.fetch(low, batch, 1, *columns)
            if sent:
                last = time.perf_counter()
            if rows:
                low = max(low, max(row[1] for row in rows) - 5000)
                for row in rows:
                    loop.create_task(run(row[0], row[2]))
                await asyncio.sleep(0)
            idle = 0 if rows or ended else idle + 1

    dbs = [await asyncpg.connect(url, server_settings={"search_path": "yardstick"}) for _ in range(2)]
    steps = [await connection.prepare(_STEP) for connection in dbs]
    first = time.perf_counter()
    await asyncio.gather(*map(pump, steps))
    kept = await db.fetchval("select count(*) from yardstick.history where result is not null")
    assert kept == jobs, (kept, jobs)
    await db.execute("drop schema yardstick cascade")
    for connection in (db, *dbs):
        await connection.close()
    return jobs / (last - first)


def postgres(url: str, jobs: int, batch: int = 500) -> float:
    """Jobs a second of the bare statement."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_postgres(url, jobs, batch))


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


def sqlite(folder: Path, jobs: int, batch: int = 500, *, each: bool = False) -> float:
    """Jobs a second of the bare transaction, accepted means durable."""
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
        # A bytearray, because the module looks for an adapter whenever it is given bytes.
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
