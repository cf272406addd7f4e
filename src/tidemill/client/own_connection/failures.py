"""Translation of database errors on the user's own connection.

Drivers and frameworks wrap these errors, but the database's error code is preserved.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.errors import (
    JobExists,
    SchemaOutdated,
    StoreBusy,
    StoreCorrupt,
    StoreUnavailable,
    TidemillError,
    UsageError,
)
from tidemill.stores.sql.sqlite import failures as sqlite_failures

_BUSY = frozenset({"40001", "40P01", "55P03", "57014"})
_MISSING = frozenset({"42P01", "42703", "3F000"})
_REFUSED = frozenset({"22", "23"})
_DONE_FOR = "your transaction has failed with it: roll it back and do all of it again"


def of_postgres(error: Exception, where: str) -> TidemillError | None:
    """Return the error to raise instead, or None if the driver's own error is the best one."""
    for cause in _causes(error):
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if isinstance(state, str):
            return _said(state, _sentence(cause), where)
    return None


def of_sqlite(error: Exception, path: str) -> TidemillError | None:
    """Return the error to raise instead, or None if the driver's own error is the best one."""
    for cause in _causes(error):
        if isinstance(cause, Exception) and sqlite_failures.code_of(cause):
            return sqlite_failures.translate(cause, path, "enqueue")
    return None


def _said(state: str, text: str, where: str) -> TidemillError | None:
    if state == "23505":
        return JobExists(
            f"one of these jobs was stored by another process in the meantime ({text}); {_DONE_FOR}"
        )
    if state in _BUSY:
        return StoreBusy(f"{where} is busy ({text}); {_DONE_FOR}")
    if state in _MISSING:
        return SchemaOutdated(
            f"{where} lacks Tidemill's tables ({text}); run: tidemill db migrate --store '{where}'"
        )
    if state == "25P02":
        return UsageError("an earlier statement of your transaction has failed; roll it back and start again")
    if state == "25006":
        return StoreUnavailable(
            f"your transaction may only read ({text}); open one that may write, on the primary"
        )
    if state == "42501":
        return StoreUnavailable(
            f"{where} denied access ({text}); grant the role of your connection privileges on the schema"
        )
    if state[:2] in _REFUSED:
        return StoreCorrupt(f"{where} refused the data ({text}); {_DONE_FOR}")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it wraps, outermost first."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = getattr(error, "orig", None) or error.__cause__


def _sentence(error: BaseException) -> str:
    text = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    return text.strip().splitlines()[0].rstrip(".") if text.strip() else type(error).__name__
