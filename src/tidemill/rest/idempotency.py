"""``Idempotency-Key``: the same key of the same tenant means the same job, however many processes are asked at once.

It is a unique key of the store, so that the database decides who was first. A job holds one unique key: for a task or a request
with a rule of uniqueness of its own there is no room for another, and that is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.domain.job import Job, UniqueHold
from tidemill.domain.unique import Unique
from tidemill.rest.problems import Problem

LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotent(Unique):
    """A rule of uniqueness whose key the caller gave; it is kept while the job lives and for ``within``, whichever is longer."""

    key: str = ""

    def hold(self, task: str, args: Mapping[str, object]) -> UniqueHold:
        """The same key for whatever task and arguments: that they are others is found out by comparing."""
        digest = hashlib.sha256(self.key.encode()).hexdigest()
        return UniqueHold(f"idempotency:{digest[:48]}", window=self.within)


def read_key(text: str) -> str:
    """The header's value, which is 1 to 200 visible ASCII characters."""
    if not 0 < len(text) <= LONGEST or not text.isascii() or not text.isprintable():
        raise Problem(
            422, "bad_idempotency_key", f"Idempotency-Key: give 1 to {LONGEST} visible ASCII characters"
        )
    return text


def check_same(before: Job, asked: Job) -> None:
    """Refuse a key that was used for another request: what is compared is what the job was asked for with."""
    for name in ("task", "args", "queue", "priority", "max_attempts", "timeout"):
        if getattr(before, name) != getattr(asked, name):
            _refuse(before, name)
    for name in ("reference", "tags", "metadata", "parent_id", "options"):
        if getattr(before.details, name) != getattr(asked.details, name):
            _refuse(before, name)


def _refuse(before: Job, name: str) -> None:
    raise Problem(
        409,
        "idempotency_key_reused",
        f"this Idempotency-Key belongs to job {before.id}, which was asked for with another {name}",
        job_id=str(before.id),
    )
