"""Waits of suspended jobs, written with the finish that suspends them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemill.domain.job import Finish
from tidemill.stores.sql.driver import Driver


def write_waits(db: Driver, suspended: Sequence[Finish]) -> None:
    """Replace the waits of jobs that these accepted finishes suspended; within the transaction of the finishes."""
    if not suspended:
        return
    db.run("drop_waits", {"ids": [item.claim.id for item in suspended]})
    waits = [
        (item.claim, wait)
        for item in suspended
        for wait in (item.additions.waits if item.additions is not None else ())
    ]
    if not waits:
        return
    columns: dict[str, list[Any]] = {
        "job_id": [claim.id for claim, _ in waits],
        "tenant": [claim.tenant for claim, _ in waits],
        "token": [claim.token for claim, _ in waits],
        "created_at": [claim.created_at for claim, _ in waits],
        "name": [wait.name for _, wait in waits],
        "match": [wait.match for _, wait in waits],
        "event": [wait.event for _, wait in waits],
        "since": [wait.since for _, wait in waits],
    }
    db.run("put_waits", None, columns)
