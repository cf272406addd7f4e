"""Completion of the running job in the user's own transaction: ``ctx.complete``.

The user's commit and the worker's own write compete for the job, and the lease token decides: the first one completes
the job, and the other one finds it completed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tidemill.domain.decide import COMPLETED, completed
from tidemill.domain.graph import StepRecord
from tidemill.domain.job import Claim, Finish, LogEntry, ProgressReport
from tidemill.domain.large_values import BlobKey, BlobReference, spilled
from tidemill.domain.payload import size_of
from tidemill.domain.record import Keep, Record, rows_kept
from tidemill.domain.streams import StreamEntry
from tidemill.engine.follow_ups import FollowUps
from tidemill.errors import LeaseLost, UsageError
from tidemill.tasks.secret_values import seal_result
from tidemill.tasks.task import Declared

COMPLETED_ALREADY = "ctx.complete was called; call ctx.then and ctx.transaction before it"


class Unwritten(NamedTuple):
    """Output of a running job that its worker has not written yet."""

    lines: Sequence[LogEntry] = ()
    reports: Sequence[ProgressReport] = ()
    items: Sequence[StreamEntry] = ()


class Completable(Protocol):
    """The parts of a running job that its completion needs."""

    @property
    def declared(self) -> Declared: ...

    @property
    def claim(self) -> Claim: ...

    @property
    def record(self) -> Record: ...

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
        """Write the log lines, the progress and the items of streams that are not written yet."""
        ...

    def unwritten(self) -> Unwritten:
        """A copy of the output that is not written yet."""
        ...


class Connections(Protocol):
    """Writes on the user's own connections. The client implements it."""

    def finish(self, connection: object, finish: Finish, words: Completable) -> bool: ...

    async def afinish(self, connection: object, finish: Finish, words: Completable) -> bool: ...

    def record_steps(self, connection: object, records: Sequence[StepRecord]) -> bool: ...

    async def arecord_steps(self, connection: object, records: Sequence[StepRecord]) -> bool: ...


def connections_of(job: Completable) -> Connections:
    """The client's access to the user's connections."""
    if job.connections is None:
        raise UsageError("this job runs without an app, and only an app can complete it on a connection")
    return job.connections


def completion(job: Completable, following: FollowUps, result: object) -> Finish:
    """The write for the user's connection."""
    text = dump_result(job.declared, result, job.claim)
    then, audit = following.close(COMPLETED_ALREADY)
    following.result = text
    keep = rows_kept(job.record, COMPLETED.state, job.claim.token)
    kept = None if keep is Keep.NOTHING else text
    transition = completed(kept)
    return Finish(job.claim, transition, kept, None, job.completing(), 0.0, then, audit, keep)


def check_held(id: UUID, held: bool) -> None:
    """Raise ``LeaseLost`` if nothing was written, so that the user's transaction rolls back."""
    if not held:
        raise LeaseLost(f"job {id} is no longer held by this worker; roll your transaction back", id=id)


def dump_result(declared: Declared, value: Any, claim: Claim) -> str:
    """A result as JSON, checked against the task's type; one that is too large for the row becomes a reference."""
    codec = declared.result
    text = codec.dump(value)
    if codec.is_secret:
        text = seal_result(text, claim.id)
    # A shorter text fits, whatever its characters are: UTF-8 uses at most four bytes for each.
    return fitted(declared, text, claim) if len(text) * 4 > declared.options.result_limit else text


def fitted(declared: Declared, text: str, claim: Claim) -> str:
    """The result for the row of its job: itself, a reference to it, or a note that it is not kept."""
    options, size = declared.options, size_of(text)
    if size <= options.result_limit:
        return text
    if options.large_results == "refuse":
        refused = f"the limit is {options.result_limit:,} bytes (result_limit), and large_results is 'refuse'"
    elif size > options.max_result:
        refused = f"the limit is {options.max_result:,} bytes (max_result)"
    else:
        return spilled(text, BlobKey(claim.id, claim.token))
    return BlobReference(size, refused=refused).text()
