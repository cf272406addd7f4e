"""Checks of ``tidemill doctor`` on an SQLite file, without opening it in SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.stores.sql.sqlite.file_checks import NETWORKED, filesystem, trouble
from tidemill.stores.sql.sqlite.settings import read_settings

LARGE_LOG = 256 * 1024 * 1024
_MOUNTS = Path("/proc/mounts")
# The two file format versions at offset 18 that indicate WAL mode.
_WAL = b"\x02\x02"


def look_at_file(url: str) -> Iterator[tuple[str, str, str]]:
    """Yield status, check and text of each check."""
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    settings = read_settings(dict(parse_qsl(parts.query, keep_blank_values=True)), url)
    wrong = trouble(path)
    if wrong is not None:
        yield "fail", "file", wrong
        return
    yield "ok", "file", f"{path} and its directory are writable"
    yield _place(path)
    if settings.synchronous == "full":
        yield "ok", "durability", "synchronous=full: accepted jobs survive a power failure"
    else:
        yield (
            "warn",
            "durability",
            "synchronous=normal: a power failure may lose the latest writes; remove it from the URL",
        )
    yield from _header(path)
    yield from _log(path)
    yield _version()


def _place(path: str) -> tuple[str, str, str]:
    try:
        kind = filesystem(_MOUNTS.read_text("utf-8", "replace"), os.path.realpath(path))
    except OSError:
        kind = None
    if kind in NETWORKED:
        return (
            "fail",
            "file system",
            f"{kind} is a network file system, where SQLite's locks do not work; use a local disk or PostgreSQL",
        )
    return "ok", "file system", kind or "not a known network file system"


def _header(path: str) -> Iterator[tuple[str, str, str]]:
    try:
        with Path(path).open("rb") as file:
            head = file.read(20)
    except OSError:
        return
    if len(head) < 20:
        return  # The file is still empty.
    if head[18:20] == _WAL:
        yield "ok", "journal", "WAL"
    else:
        yield (
            "fail",
            "journal",
            "not WAL: another program changed it; the next worker that opens the file alone restores it",
        )


def _log(path: str) -> Iterator[tuple[str, str, str]]:
    try:
        size = Path(f"{path}-wal").stat().st_size
    except OSError:
        return
    megabytes = f"{size / 1024 / 1024:.1f} MiB"
    if size > LARGE_LOG:
        yield (
            "warn",
            "log",
            f"{path}-wal has {megabytes}: a reader has been open for a long time; find and close it",
        )
    else:
        yield "ok", "log", f"{megabytes} in {path}-wal"


def _version() -> tuple[str, str, str]:
    version, number = sqlite3.sqlite_version, sqlite3.sqlite_version_info
    if _may_lose(number):
        return (
            "warn",
            "sqlite",
            f"{version} has a rare fault that can damage a database in WAL mode; use 3.51.3 or newer",
        )
    return "ok", "sqlite", version


def _may_lose(number: tuple[int, ...]) -> bool:
    """Whether this version has the WAL-reset bug, fixed in 3.51.3, 3.50.7 and 3.44.6."""
    if (3, 44, 6) <= number < (3, 45, 0) or (3, 50, 7) <= number < (3, 51, 0):
        return False
    return (3, 7, 0) <= number < (3, 51, 3)
