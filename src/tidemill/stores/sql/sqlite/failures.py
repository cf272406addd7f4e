"""Translation of SQLite's errors."""

from __future__ import annotations

import re
import sqlite3

from tidemill.errors import (
    JobExists,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    TidemillError,
    UsageError,
)
from tidemill.stores.sql.sqlite.file_checks import trouble

_JOB_ID = re.compile(
    r"tidemill_(ready|scheduled|parked|running|history|details|item_enqueue|item_move|gone|executions)\.(job_)?id\b"
    r"|tidemill_held\.place\b"
)
_SCHEDULE_ID = re.compile(r"tidemill_(item_schedule|lost)\.id\b")
_WORKER_ID = re.compile(r"tidemill_workers\.id\b")

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_OUT_OF_REACH = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)


def code_of(error: BaseException) -> int:
    """SQLite's primary error code; zero for other errors."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether the file was locked, so that the same call may succeed later."""
    return code_of(error) in _BUSY


def out_of_reach(error: BaseException) -> bool:
    """Whether the file could not be opened or written."""
    return code_of(error) in _OUT_OF_REACH


def translate(error: Exception, path: str, query: str = "") -> TidemillError:
    """The error to raise instead of SQLite's; ``query`` is the name of the query."""
    if isinstance(error, (OverflowError, UnicodeEncodeError)):
        return UsageError(f"a value cannot be stored in {path} ({error}); nothing was changed")
    code, text = code_of(error), str(error)
    if is_busy(error):
        return busy(path)
    if code in _CORRUPT:
        return StoreCorrupt(
            f"{path} is not a valid SQLite database ({text}); restore it from a backup or give another file",
            path=path,
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"the disk of {path} is full; nothing was changed, free some space and try again", path=path
        )
    if code in _OUT_OF_REACH:
        return StoreUnavailable(
            trouble(path) or f"{path} cannot be written ({text}); check its permissions and its disk",
            path=path,
        )
    if code == sqlite3.SQLITE_IOERR:
        return StoreUnavailable(
            f"the disk of {path} reports an error ({text}); nothing was changed, check the disk and its free space",
            path=path,
        )
    if isinstance(error, sqlite3.IntegrityError):
        return _refused(text, path, query)
    if "no such table: tidemill_" in text or "no such column" in text:
        return StoreCorrupt(
            f"{path} lacks tables or columns of Tidemill ({text}); restore it from a backup", path=path
        )
    return StoreError(f"{path}: {text}", path=path)


def busy(path: str) -> StoreBusy:
    """The error if the file was locked for too long."""
    return StoreBusy(
        f"other processes kept {path} locked for the whole waiting time; nothing was changed, try again",
        path=path,
    )


def _refused(text: str, path: str, query: str) -> TidemillError:
    if _JOB_ID.search(text):
        if query == "enqueue":
            return JobExists("one of these jobs is already stored, or given twice; nothing was enqueued")
        return UsageError("a job is given twice in one batch; give it once (nothing was changed)")
    if _SCHEDULE_ID.search(text):
        return UsageError("a schedule is given twice in one batch; give it once (nothing was changed)")
    if _WORKER_ID.search(text):
        return UsageError("this worker is already registered; use a new id at every start")
    return StoreCorrupt(f"{path} refused the data ({text}); nothing was changed", path=path)
