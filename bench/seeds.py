"""Finished jobs by the million, written straight into the tables: what a store has beside it after a while."""

from __future__ import annotations

import sqlite3
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
with recursive n(n) as (select 1 union all select n + 1 from n where n < ?)
select cast(printf('%016d', n) as blob), 'default', 'default', 'send_email', 0, 1, 4, 0, 1, n, n, 3600000000, 0,
       '{"user_id": 123, "email": "a@example.com"}', 'completed', 'succeeded', randomblob(16), n, n, n, '{"ok": true}'
from n
"""


def finished_sqlite(path: Path, count: int) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(_SQLITE, (count,))
    connection.close()
