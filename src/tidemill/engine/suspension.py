"""The instruction that suspends a job, with the rows that are written with its finish."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.graph import Additions, Edge, NewGroup, NewJoin, StepRecord, Wait
from tidemill.domain.job import Claim, NewJob
from tidemill.domain.outcome import Suspended
from tidemill.domain.steps import PREFIX
from tidemill.errors import Suspend

_SOON = timedelta(milliseconds=1)
LEASE_LOST = "the worker lost its lease"


class Suspension(NamedTuple):
    """The wait of a suspended job, and the rows of the transaction that suspends it."""

    reason: str
    until: datetime | None = None  #: by the store's clock; None: only an event ends the wait
    waits: tuple[Wait, ...] = ()
    edges: tuple[Edge, ...] = ()  #: those of the job itself, and those of ``jobs``
    joins: tuple[NewJoin, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    groups: tuple[NewGroup, ...] = ()
    records: Mapping[str, str] = {}  #: by the name of the step

    @property
    def is_tied(self) -> bool:
        """Whether its records must be written in the same transaction as the rest."""
        return bool(self.waits or self.edges or self.joins or self.jobs or self.groups)


class Suspending(Suspend):
    """The raised instruction. It is a ``Signal``, so ``except Exception`` does not catch it."""

    def __init__(self, suspension: Suspension, now: datetime) -> None:
        """``now`` is the store's time."""
        super().__init__(suspension.reason)
        self.suspension = suspension
        self._now = now

    @property
    def outcome(self) -> Suspended:
        """The outcome of the execution."""
        until = self.suspension.until
        if until is None:
            return Suspended(self.suspension.reason)
        # A delay of zero would mean a wait without an end.
        return Suspended(self.suspension.reason, max(until - self._now, _SOON))


def additions_of(suspension: Suspension, claim: Claim, records: Mapping[str, str]) -> Additions | None:
    """The rows of a suspension, with these further records; None if there are none."""
    rows = Additions(
        suspension.jobs,
        suspension.edges,
        suspension.joins,
        suspension.groups,
        records_of(claim, {**records, **suspension.records}),
        suspension.waits,
    )
    return None if rows == Additions() else rows


def records_of(claim: Claim, records: Mapping[str, str]) -> tuple[StepRecord, ...]:
    """Records of steps as fenced writes."""
    return tuple(
        StepRecord(claim.id, claim.token, claim.worker, PREFIX + name, value)
        for name, value in records.items()
    )
