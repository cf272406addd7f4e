"""Model fields of the columns of a store, whose types differ between PostgreSQL and SQLite."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import models

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class JobIdField(models.UUIDField):  # type: ignore[misc]  # Django has no types
    """An id: a ``uuid`` on PostgreSQL, 16 bytes on SQLite."""

    def get_internal_type(self) -> str:
        """Return a name that Django's backends have no conversions for."""
        return "JobIdField"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        id = self.to_python(value)
        return id if id is None or connection.vendor == "postgresql" else id.bytes

    def get_db_converters(self, connection: Any) -> list[Any]:
        return [_read_id]


class InstantField(models.DateTimeField):  # type: ignore[misc]  # Django has no types
    """An instant: a ``timestamptz`` on PostgreSQL, microseconds since 1970 on SQLite."""

    def get_internal_type(self) -> str:
        """Return a name that Django's backends have no conversions for."""
        return "InstantField"

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        if value is None or connection.vendor == "postgresql":
            return super().get_db_prep_value(value, connection, prepared)
        return (value - _EPOCH) // timedelta(microseconds=1)

    def get_db_converters(self, connection: Any) -> list[Any]:
        return [_read_instant] if connection.vendor != "postgresql" else super().get_db_converters(connection)


def _read_id(value: Any, *_: Any) -> UUID | None:
    return UUID(bytes=bytes(value)) if isinstance(value, bytes | memoryview) else value


def _read_instant(value: Any, *_: Any) -> datetime | None:
    return None if value is None else _EPOCH + timedelta(microseconds=value)
