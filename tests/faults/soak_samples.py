"""Samples of a soak: memory, descriptors, threads, connections, rows, sizes and WAL."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import psycopg

from tidemill.engine.deathwatch import descendants

Sample: TypeAlias = dict[str, float]
"""The value of each resource, by name."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def resources(processes: Mapping[str, int]) -> Sample:
    """Return memory, open descriptors and threads of these processes with their descendants, by name."""
    sample: Sample = {}
    for name, pid in processes.items():
        # The client's own children are measured under their own names.
        family = [pid] if pid == os.getpid() else [pid, *descendants(pid)]
        for member in family:
            for kind, value in _of_process(member):
                sample[f"{kind} of {name}"] = sample.get(f"{kind} of {name}", 0.0) + value
    return sample


def _of_process(pid: int) -> Iterator[tuple[str, float]]:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        place = Path(f"/proc/{pid}")
        resident = int((place / "statm").read_text().split()[1]) * _PAGE
        yield "memory", float(resident)
        yield "descriptors", float(len(list((place / "fd").iterdir())))
        yield "threads", float(len(list((place / "task").iterdir())))


def store_resources(url: str) -> Sample:
    """Return the rows of each table, the sizes of tables and indexes, the WAL, and the connections."""
    return _of_sqlite(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite") else _of_postgres(url)


def _of_sqlite(path: Path) -> Sample:
    sample: Sample = {"wal size": 0.0}
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as raw:
        names = [
            name
            for (name,) in raw.execute(
                "select name from sqlite_master where type = 'table' and name like 'tidemill!_%' escape '!'"
            )
        ]
        for name in names:
            (rows,) = raw.execute(f"select count(*) from {name}").fetchone()
            sample[f"rows in {name.removeprefix('tidemill_')}"] = float(rows)
        (pages,), (free,), (size,) = (
            raw.execute(f"pragma {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        sample["tables size"] = float((pages - free) * size)
    sample["file size"] = float(path.stat().st_size)
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        sample["wal size"] = float(wal.stat().st_size)
    return sample


def _of_postgres(url: str) -> Sample:
    sample: Sample = {}
    with psycopg.connect(url, autocommit=True) as raw:
        tables = raw.execute(
            "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where nspname = 'tidemill' and relkind in ('r', 'p') and not relispartition order by 1"
        ).fetchall()
        for (name,) in tables:
            found = raw.execute(f"select count(*) from tidemill.{name}".encode()).fetchone()
            assert found is not None
            sample[f"rows in {name}"] = float(found[0])
        sizes = raw.execute(
            "select coalesce(sum(pg_table_size(c.oid)), 0)::int8, coalesce(sum(pg_indexes_size(c.oid)), 0)::int8, "
            "(select sum(size) from pg_ls_waldir())::int8, "
            "(select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()) "
            "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where nspname = 'tidemill' and relkind = 'r'"
        ).fetchone()
        assert sizes is not None
        for name, value in zip(
            ("tables size", "indexes size", "wal size", "connections"), sizes, strict=True
        ):
            sample[name] = float(value)
    return sample
