"""``Idempotency-Key``: requests with the same key return the same job.

The key is a unique key in the store, so the database decides between concurrent requests to different processes. A job
can hold one unique key. A task or request with its own uniqueness rule therefore refuses the header.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.domain.job import JobRow, UniqueHold
from tidemill.domain.unique import Unique
from tidemill.web.problems import Problem

LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotent(Unique):
    """A uniqueness rule with the caller's key. It holds until the job has ended and ``within`` has passed."""

    key: str = ""

    def hold(self, task: str, args: Mapping[str, object]) -> UniqueHold:
        """Return the same key for every task and arguments. ``check_same`` detects a different request."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()
        return UniqueHold(f"idempotency:{digest[:48]}", window=self.within)


def read_key(text: str) -> str:
    """Validate the header: 1 to 200 visible ASCII characters."""
    if not 0 < len(text) <= LONGEST or not text.isascii() or not text.isprintable():
        raise Problem(
            422, "bad_idempotency_key", f"Idempotency-Key: use 1 to {LONGEST} visible ASCII characters"
        )
    return text


def check_same(before: JobRow, planned: JobRow) -> None:
    """Raise 409 if the key was used for a different request, by comparing the jobs' properties."""
    for name in ("task", "args", "queue", "priority", "max_attempts", "timeout"):
        if getattr(before, name) != getattr(planned, name):
            _refuse(before, name)
    for name in ("reference", "tags", "metadata", "parent_id", "options"):
        if getattr(before.details, name) != getattr(planned.details, name):
            _refuse(before, name)


def _refuse(before: JobRow, name: str) -> None:
    raise Problem(
        409,
        "idempotency_key_reused",
        f"this Idempotency-Key belongs to job {before.id}, which was requested with a different {name}",
        job_id=str(before.id),
    )
