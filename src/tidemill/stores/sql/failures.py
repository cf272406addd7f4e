"""Failures of jobs in the SQL store."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from tidemill.domain.failures import (
    ErrorMark,
    Failure,
    FailureCount,
    FailureGroup,
    FailurePart,
    MarkStatus,
)
from tidemill.stores.failures import FailureStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import at_most, dump, tenant_of

FAILING = "failing"
"""The flag of the lines that record failures."""


def failure_columns(failures: Sequence[Failure | None]) -> dict[str, list[Any]]:
    """The columns that record the failures of a batch; none if nothing failed."""
    if failures.count(None) == len(failures):
        return {}
    return {
        "fingerprint": [failure and failure.fingerprint for failure in failures],
        "variant": [failure and failure.variant for failure in failures],
        "cause": [failure and dump([failure.type, failure.place]) for failure in failures],
        "message": [failure and failure.message for failure in failures],
    }


def failure_flags(columns: Iterable[str], *flags: str) -> tuple[str, ...]:
    """These flags, and the one of failures if there are columns for them."""
    return (FAILING, *flags) if "fingerprint" in columns else flags


class SqlFailures(SqlPart, FailureStore):
    """The verbs of failures."""

    def failure_groups(
        self,
        window: timedelta,
        *,
        tenant: str,
        fingerprint: str | None = None,
        task: str | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[FailureGroup]:
        takes = {
            "since": self._time(now) - window,
            "tenant": tenant_of(tenant),
            "fingerprint": fingerprint,
            "task": task,
            "limit": at_most(limit),
        }
        return [
            FailureGroup(*row[:7], *json.loads(row[7]), *row[8:])
            for row in self._db.run("failure_groups", takes)
        ]

    def failure_series(
        self,
        window: timedelta,
        steps: int,
        *,
        tenant: str,
        fingerprints: Collection[str],
        now: datetime | None = None,
    ) -> dict[str, list[int]]:
        series = {key: [0] * steps for key in fingerprints}
        if not series:
            return {}
        takes = {
            "since": self._time(now) - window,
            "step": window / steps,
            "tenant": tenant_of(tenant),
            "fingerprints": sorted(series),
        }
        for fingerprint, step, jobs in self._db.run("failure_series", takes):
            series[fingerprint][min(step, steps - 1)] += jobs
        return series

    def failure_counts(
        self,
        fingerprint: str,
        part: FailurePart,
        window: timedelta,
        *,
        tenant: str,
        limit: int = 20,
        now: datetime | None = None,
    ) -> list[FailureCount]:
        takes = {
            "fingerprint": fingerprint,
            "part": part,
            "since": self._time(now) - window,
            "tenant": tenant_of(tenant),
            "limit": at_most(limit),
        }
        return [
            FailureCount(name, jobs, last_at, message, job)
            for name, jobs, last_at, _, message, job in self._db.run("failure_counts", takes)
        ]

    def error_marks(self, *, tenant: str) -> list[ErrorMark]:
        return [
            ErrorMark(owner, fingerprint, MarkStatus(status), at, by)
            for owner, fingerprint, status, at, by in self._db.run(
                "error_marks", {"tenant": tenant_of(tenant)}
            )
        ]

    def put_error_marks(self, marks: Sequence[ErrorMark], *, now: datetime | None = None) -> None:
        if not marks:
            return
        columns: dict[str, list[Any]] = {
            "tenant": [mark.tenant for mark in marks],
            "fingerprint": [mark.fingerprint for mark in marks],
            "status": [mark.status for mark in marks],
            "marked_by": [mark.by for mark in marks],
        }
        self._db.run("put_error_marks", {"now": now}, columns)

    def merge_failures(self, before: datetime, *, limit: int = 5_000) -> int:
        rows = self._db.run("merge_failures", {"before": before, "limit": at_most(limit)})
        number: int = rows[0][0]
        return number

    def drop_failures(self, before: datetime) -> int:
        number: int = self._db.run("drop_failures", {"before": before})[0][0]
        return number
