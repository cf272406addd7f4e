"""Translation of psycopg's errors, and retries."""

from __future__ import annotations

import random
import re
import struct
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import psycopg
from psycopg import errors as pg

from tidemill.errors import (
    JobExists,
    SchemaForeign,
    SchemaOutdated,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    UsageError,
)

P = ParamSpec("P")
R = TypeVar("R")

_TRIES = 5

RETRIED = (pg.DeadlockDetected, pg.SerializationFailure)
"""Errors after which nothing was changed and the same statement may succeed immediately."""

UNPACKABLE = (UnicodeEncodeError, struct.error)
"""Errors of packing a value that the server cannot hold: a lone surrogate, a number or an interval out of range."""

_UNSTORABLE = (
    *UNPACKABLE,
    pg.CharacterNotInRepertoire,
    pg.UntranslatableCharacter,  # the server's error for a NUL
    pg.ProgramLimitExceeded,  # the server's error for a text that is too long for an index
)

_BUSY = (pg.LockNotAvailable, pg.QueryCanceled, *RETRIED)
_CORRUPT = (pg.DataCorrupted, pg.IndexCorrupted)
_MISSING = (pg.UndefinedTable, pg.InvalidSchemaName, pg.UndefinedColumn)
_JOB_TABLES = frozenset({"ready", "scheduled", "parked", "running", "history", "details"})
_KEYED_TABLES = frozenset({"definitions", "schedules"})
_PREAMBLE = re.compile(r"^connection failed: (?:connection to server at .*? failed: )?(?:FATAL: +)?")
_REFUSALS = [
    (re.compile(sign), sentence)
    for sign, sentence in (
        (r'database "(.*)" does not exist', "{where} does not exist ({text}); create it: createdb {name}"),
        (
            r'authentication failed|no password supplied|role "(.*)" does not exist|pg_hba\.conf',
            "{where} refused the login ({text}); check the user and password in the URL",
        ),
        (
            r"too many clients|too many connections|remaining connection slots",
            "{where} has no free connection ({text}); raise max_connections or lower ?pool=",
        ),
        (
            r"session is read-only",
            "{where} is read-only ({text}); it may be a standby: point to the primary",
        ),
    )
]
"""Patterns of connection errors, and the messages to raise instead."""


def translate(
    error: psycopg.Error | UnicodeEncodeError | struct.error, where: str
) -> StoreError | JobExists | UsageError:
    """The error to raise instead of the driver's."""
    if isinstance(error, psycopg.Error) and not isinstance(error, _UNSTORABLE):
        return _translated(error, where)
    text = _sentence(error) if isinstance(error, psycopg.Error) else str(error)
    return UsageError(f"a value cannot be stored in {where} ({text}); nothing was changed")


def _translated(error: psycopg.Error, where: str) -> StoreError | JobExists:
    text = _sentence(error)
    match error:
        case pg.UniqueViolation() if error.diag.table_name in _JOB_TABLES:
            return JobExists("one of these jobs is already stored; nothing was enqueued")
        case pg.UniqueViolation() if error.diag.table_name in _KEYED_TABLES:
            return StoreBusy(
                f"another process took one of these keys in {where} at the same time; nothing was changed, try again"
            )
        case _ if isinstance(error, _BUSY):
            return StoreBusy(f"{where} is busy ({text}); nothing was changed, try again")
        case pg.ReadOnlySqlTransaction():
            return StoreUnavailable(
                f"{where} is read-only ({text}); it may be a standby: point to the primary"
            )
        case pg.InsufficientPrivilege():
            return StoreUnavailable(
                f"{where} denied access ({text}); grant the role privileges on the schema"
            )
        case pg.DiskFull():
            return StoreUnavailable(f"the disk of {where} is full ({text}); nothing was changed")
        case _ if isinstance(error, _CORRUPT):
            return StoreCorrupt(f"{where} reports damaged data ({text}); restore it before you continue")
        case _ if isinstance(error, _MISSING):
            return SchemaOutdated(
                f"{where} lacks Tidemill's tables ({text}); run: tidemill db migrate --store '{where}'"
            )
        case pg.DuplicateTable() | pg.DuplicateObject():
            return SchemaForeign(
                f"{where} contains tables of another program ({text}); choose another ?schema="
            )
        case pg.IntegrityError() | pg.DataError():
            return StoreCorrupt(f"{where} refused the data ({text}); nothing was changed")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(_unreachable(text, where))
        case _:
            return StoreError(f"{where}: {text}")


def _unreachable(text: str, where: str) -> str:
    """Why there is no connection. libpq does not expose the error code while it connects, so the message is matched."""
    for sign, sentence in _REFUSALS:
        if match := sign.search(text):
            return sentence.format(where=where, text=text, name=match[match.lastindex or 0])
    return f"cannot reach {where}: {text}; is the server up, and are host and port right?"


def _sentence(error: psycopg.Error) -> str:
    """The first line of the driver's message, which often has several lines and repeats itself."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return _PREAMBLE.sub("", lines[0]).rstrip(".") if lines else type(error).__name__


def again(act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Retry a call that failed because of a concurrent transaction; the last failure is raised."""
    tried = 1
    while True:
        time.sleep(random.uniform(0.001, 0.01) * tried)  # noqa: S311  (no secret)
        tried += 1
        try:
            return act(*args, **kwargs)
        except RETRIED:
            if tried == _TRIES:
                raise
