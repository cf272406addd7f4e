"""psycopg's errors in our words: one sentence, with what to do. And trying again, where that is what to do."""

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
"""Nothing happened, and the same statement may well succeed at once."""

UNPACKABLE = (UnicodeEncodeError, struct.error)
"""What packing says to a value the server has no place for: half a character, a number or a span beyond all bounds."""

_UNSTORABLE = (
    *UNPACKABLE,
    pg.CharacterNotInRepertoire,
    pg.UntranslatableCharacter,  # the server's own words: a NUL
    pg.ProgramLimitExceeded,  # and a text that is too long for an index
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
            "{where} only lets us read ({text}); it may be a standby: point to the primary",
        ),
    )
]
"""What a server that refuses us says, and what is to be done."""


def translate(
    error: psycopg.Error | UnicodeEncodeError | struct.error, where: str
) -> StoreError | JobExists | UsageError:
    """The error to raise instead of the driver's own."""
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
                f"somebody took one of these keys in {where} at the same moment; nothing was changed, try again"
            )
        case _ if isinstance(error, _BUSY):
            return StoreBusy(f"{where} is busy ({text}); nothing was changed, try again")
        case pg.ReadOnlySqlTransaction():
            return StoreUnavailable(
                f"{where} only lets us read ({text}); it may be a standby: point to the primary"
            )
        case pg.InsufficientPrivilege():
            return StoreUnavailable(
                f"{where} denied access ({text}); grant the role its rights on the schema"
            )
        case pg.DiskFull():
            return StoreUnavailable(f"the disk of {where} is full ({text}); nothing was changed")
        case _ if isinstance(error, _CORRUPT):
            return StoreCorrupt(f"{where} reports damaged data ({text}); restore it before going on")
        case _ if isinstance(error, _MISSING):
            return SchemaOutdated(
                f"{where} lacks our tables ({text}); run: tidemill db migrate --store '{where}'"
            )
        case pg.DuplicateTable() | pg.DuplicateObject():
            return SchemaForeign(f"{where} holds tables that are not ours ({text}); choose another ?schema=")
        case pg.IntegrityError() | pg.DataError():
            return StoreCorrupt(f"{where} refused the data ({text}); nothing was changed")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(_unreachable(text, where))
        case _:
            return StoreError(f"{where}: {text}")


def _unreachable(text: str, where: str) -> str:
    """Why there is no connection. libpq keeps the error's code to itself while it connects, so its words must do."""
    for sign, sentence in _REFUSALS:
        if match := sign.search(text):
            return sentence.format(where=where, text=text, name=match[match.lastindex or 0])
    return f"cannot reach {where}: {text}; is the server up, and are host and port right?"


def _sentence(error: psycopg.Error) -> str:
    """The first line of the driver's message, which often has several and repeats itself."""
    text = error.diag.message_primary or str(error) or type(error).__name__
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return _PREAMBLE.sub("", lines[0]).rstrip(".") if lines else type(error).__name__


def again(act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do once more what failed for what others did at the same moment; the last failure is the caller's."""
    tried = 1
    while True:
        time.sleep(random.uniform(0.001, 0.01) * tried)  # noqa: S311  (no secret)
        tried += 1
        try:
            return act(*args, **kwargs)
        except RETRIED:
            if tried == _TRIES:
                raise
