"""A job in a runner's hands: its claim, where it runs, what was asked of it, and the outlet through which it speaks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Checkpoint, Claim, Details, Job, LogEntry, Progress, job_of
from tidemill.domain.outcome import Cancelled, Outcome, Released, Succeeded, TimedOut
from tidemill.engine.execute import Ended
from tidemill.stores.base import Store
from tidemill.tasks.task import Declared

STOPPING = "the worker is stopping"


class Desk(Protocol):
    """What a held job needs of its runner."""

    store: Store
    clock: Clock

    def report(self, held: Held, progress: Progress) -> None: ...

    def log(self, held: Held, entry: LogEntry) -> None: ...


class Held:
    """One claim and its life here. It is the ``Outlet`` of its own context, so one object serves a job."""

    __slots__ = (
        "began",
        "cancel_reason",
        "claim",
        "declared",
        "desk",
        "details",
        "handle",
        "kind",
        "lost",
        "over",
        "releasing",
        "settled",
        "stopped_at",
        "timed_out",
        "warned",
    )

    def __init__(self, claim: Claim, declared: Declared, details: Details, desk: Desk, kind: str) -> None:
        self.claim, self.declared, self.details, self.desk, self.kind = claim, declared, details, desk, kind
        self.began: float | None = None  #: a reading of the monotonic clock, once it runs
        self.handle: Any = None  #: what the lane stops it by
        self.cancel_reason: str | None = claim.cancel_reason
        self.lost = False  #: it is not ours any more; whatever it does is written nowhere
        self.timed_out = False
        self.releasing = False
        self.stopped_at: float | None = None  #: when it was first told to stop
        self.settled = False  #: how it ended is decided; what the handler still says does not count
        self.over = False  #: the handler has ended and its slot is free
        self.warned = False

    @property
    def id(self) -> UUID:
        return self.claim.id

    def job(self) -> Job:
        """The job as its context shows it."""
        return job_of(self.claim, self.details, self.desk.clock.now())

    def is_overdue(self, at: float) -> bool:
        """Whether it runs longer than it may."""
        timeout = self.claim.timeout
        return timeout is not None and self.began is not None and at - self.began >= timeout.total_seconds()

    def outcome(self, ended: Ended | None) -> Outcome:
        """What the end of the handler means, given what was asked of it; None: it was stopped from outside."""
        if ended is not None and isinstance(ended.outcome, Succeeded):
            return ended.outcome
        if self.timed_out and self.claim.timeout is not None:
            return TimedOut(self.claim.timeout)
        if ended is None or isinstance(ended.outcome, Cancelled):
            if self.releasing and self.cancel_reason is None:
                return Released(STOPPING)
            if ended is None or self.cancel_reason is not None:
                return Cancelled(self.cancel_reason)
        return ended.outcome

    # Outlet ------------------------------------------------------------------------------------------------------------

    def report(self, progress: Progress) -> None:
        if not self.settled:
            self.desk.report(self, progress)

    def log(self, entry: LogEntry) -> None:
        if not self.settled:
            self.desk.log(self, entry)

    def checkpoint(self, name: str) -> str | None:
        return self.desk.store.checkpoints(self.claim.id, tenant=self.claim.tenant).get(name)

    def save_checkpoint(self, name: str, value: str) -> None:
        claim = self.claim
        if self.desk.store.save_checkpoints([Checkpoint(claim.id, claim.token, name, value)]):
            self.lost = True

    def is_cancelled(self) -> bool:
        return self.lost or self.releasing or self.timed_out or self.cancel_reason is not None

    def now(self) -> datetime:
        return self.desk.clock.now()

    def transaction(self) -> AbstractContextManager[None]:
        return self.desk.store.transaction()
