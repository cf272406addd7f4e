"""Completion of the running job in the user's own transaction: ``ctx.complete``.

The user's commit and the worker's own write compete for the job, and the lease token decides: the first one completes
the job, and the other one finds it completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish, LogEntry, ProgressReport
from tidemill.domain.payload import PayloadLimits
from tidemill.engine.follow_ups import FollowUps
from tidemill.errors import LeaseLost, UsageError
from tidemill.tasks.task import Declared

COMPLETED_ALREADY = "ctx.complete was called; call ctx.then and ctx.transaction before it"


class Completable(Protocol):
    """The parts of a running job that its completion needs."""

    @property
    def declared(self) -> Declared: ...

    @property
    def claim(self) -> Claim: ...

    @property
    def connections(self) -> Connections | None: ...

    @property
    def store_name(self) -> str | None:
        """The name of the store that the job is in; None if its app has one store."""
        ...

    def completing(self) -> float:
        """Allow the user's transaction to complete the job from now on; return the seconds since the execution began."""
        ...

    def flush(self) -> None:
        """Write the log lines and the progress that are not written yet."""
        ...

    def unwritten(self) -> tuple[Sequence[LogEntry], Sequence[ProgressReport]]:
        """A copy of the log lines and the progress that are not written yet."""
        ...


class Connections(Protocol):
    """Writes on the user's own connections. The client implements it."""

    def finish(self, connection: object, finish: Finish, words: Completable) -> bool: ...

    async def afinish(self, connection: object, finish: Finish, words: Completable) -> bool: ...


def connections_of(job: Completable) -> Connections:
    """The client's access to the user's connections."""
    if job.connections is None:
        raise UsageError("this job runs without an app, and only an app can complete it on a connection")
    return job.connections


def completion(job: Completable, following: FollowUps, result: object) -> Finish:
    """The write for the user's connection."""
    text = dump_result(job.declared, result)
    then, audit = following.close(COMPLETED_ALREADY)
    following.result = text
    return Finish(job.claim, COMPLETED, text, None, job.completing(), 0.0, then, audit)


def check_held(id: UUID, held: bool) -> None:
    """Raise ``LeaseLost`` if nothing was written, so that the user's transaction rolls back."""
    if not held:
        raise LeaseLost(f"job {id} is no longer held by this worker; roll your transaction back", id=id)


def dump_result(declared: Declared, value: Any) -> str:
    """A result as JSON, checked against the task's type and limit."""
    text = declared.result.dump(value)
    # A shorter text fits, whatever its characters are: UTF-8 uses at most four bytes for each.
    if len(text) * 4 > declared.options.result_limit:
        check_result_size(declared, text)
    return text


def check_result_size(declared: Declared, text: str) -> None:
    """Raise ``PayloadTooLarge`` for a result beyond the task's limit."""
    options = declared.options
    PayloadLimits(result=options.result_limit).check_result(options.name, text)
