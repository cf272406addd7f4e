"""The yardsticks: the bare statement and nothing else, in the same run as what it is compared with.

PostgreSQL: rows move ready → running → history by one statement a batch, no-op coroutines between, two connections.
SQLite: the same tables, one transaction a batch, the standard library and no more.
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


def sqlite(folder: Path, jobs: int, batch: int = 500) -> float:
    """Jobs a second of the bare transaction, accepted means durable."""
    path = folder / "yardstick.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript("""
        pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536; pragma wal_autocheckpoint = 4000;
        create table ready(seq integer primary key, id blob, task, queue, tenant, priority, due_at, attempt, args, created_at);
        create index ready_claim on ready(queue, priority desc, seq);
        create table running(id blob primary key, task, queue, tenant, priority, due_at, attempt, args, created_at, worker,
          claimed_at) without rowid;
        create table history(id blob primary key, task, queue, tenant, priority, due_at, attempt, args, created_at, worker,
          claimed_at, finished_at, result);
        create index history_task on history(task, finished_at)""")
    row = "id, task, queue, tenant, priority, due_at, attempt, args, created_at"
    db.execute("begin immediate")
    db.executemany(
        f"insert into ready({row}) values (?, 1, 1, 1, 0, 0, 1, ?, 0)",
        ((new_id().bytes, ARGS) for _ in range(jobs)),
    )
    db.execute("commit")
    held: list[tuple[bytes]] = []
    done = 0
    begun = time.perf_counter()
    while done < jobs:
        db.execute("begin immediate")
        db.executemany(
            f"insert into history({row}, worker, claimed_at, finished_at, result)"
            f" select {row}, worker, claimed_at, 1, '{{\"ok\": true}}' from running where id = ?",
            held,
        )
        db.executemany("delete from running where id = ?", held)
        done += len(held)
        got = db.execute(
            f"select seq, {row} from ready where queue = 1 order by queue, priority desc, seq limit ?",
            (batch,),
        ).fetchall()
        db.executemany("delete from ready where seq = ?", ((r[0],) for r in got))
        db.executemany("insert into running values (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1)", (r[1:] for r in got))
        db.execute("commit")
        held = [(r[1],) for r in got]
    seconds = time.perf_counter() - begun
    db.close()
    return jobs / seconds
