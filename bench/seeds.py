"""Millions of finished jobs, written directly into the tables."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import psycopg

_POSTGRES = """
insert into tidemill.history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, timeout,
                             detailed, args, state, execution, worker, claimed_at, started_at, finished_at, result)
select (lpad(to_hex(floor(extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'
        || substr(md5(n::text), 4, 15))::uuid,
       'default', 'default', 'send_email', 0, 1, 4, 0, 1, at, at, interval '1 hour', false,
       '{"user_id": 123, "email": "a@example.com"}', 'completed', 'succeeded', gen_random_uuid(), at, at, at, '{"ok": true}'
from (select n, now() - interval '1 day' + n * interval '50 milliseconds' as at from generate_series(1, %s) n) x
"""


def finished_postgres(url: str, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POSTGRES, (count,))
        connection.execute("vacuum analyze tidemill.history")


_SQLITE = """
insert into tidemill_history(id, tenant, queue, task, priority, attempt, max_attempts, crashes, token, run_at, created_at, timeout,
                             detailed, args, state, execution, worker, claimed_at, started_at, finished_at, result)
with recursive n(n) as (select 1 union all select n + 1 from n where n < :count),
at(n, at) as (select n, :begun + n * 50000 from n)
select id(at), 'default', 'default', 'send_email', 0, 1, 4, 0, 1, at, at, 3600000000, 0,
       '{"user_id": 123, "email": "a@example.com"}', 'completed', 'succeeded', randomblob(16), at, at, at, '{"ok": true}'
from at
"""


def _id(at: int) -> bytes:
    """Return an id with this creation time, so that older jobs sort before newer ones."""
    return (at // 1000).to_bytes(6, "big") + b"\x70\x00" + os.urandom(8)


def finished_sqlite(path: Path, count: int) -> None:
    connection = sqlite3.connect(path)
    connection.create_function("id", 1, _id)
    with connection:
        begun = time.time_ns() // 1000 - 86_400_000_000
        connection.execute(_SQLITE, {"count": count, "begun": begun})
    connection.close()
