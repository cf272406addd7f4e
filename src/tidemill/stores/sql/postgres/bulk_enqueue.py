"""Bulk enqueue of similar jobs, created while the server inserts earlier ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from tidemill.domain.job import NO_DETAILS, NewJob

LOT = 200
"""Jobs per statement: large enough to be cheap, small enough to give the server work early."""


class DifferentShape(Exception):
    """A job differs from the previous ones in more than its id and its arguments."""


class BulkEnqueue:
    """Jobs from an iterator, in lots; ``made`` holds all jobs so far."""

    def __init__(self, jobs: Iterator[NewJob]) -> None:
        self._jobs = jobs
        self.made: list[NewJob] = []
        self._more()
        self.alike = len(self.made) == LOT and alike(self.made)

    def _more(self) -> list[NewJob]:
        lot = list(islice(self._jobs, LOT))
        self.made += lot
        return lot

    def columns(self) -> Iterator[dict[str, list[Any]]]:
        """One lot after another, each created on demand; ``DifferentShape`` if a job is not like the first."""
        lot, first = self.made[:], self.made[0]
        while lot:
            yield columns_of(lot)
            lot = self._more()
            if lot and not alike([first, *lot]):
                raise DifferentShape

    def all(self) -> list[NewJob]:
        """All jobs; exhausts the iterator."""
        self.made += self._jobs
        return self.made


def columns_of(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    """The columns in which similar jobs differ."""
    return {"id": [job.id for job in jobs], "args": [job.args for job in jobs]}


def alike(jobs: Sequence[NewJob]) -> bool:
    """Whether the jobs differ only in id and arguments, are due now, and have neither unique keys, limits nor details."""
    first = jobs[0]
    if first.run_at or first.delay or first.unique or first.limits or first.waiting is not None or first.tied:
        return False
    if first.details is not NO_DETAILS and first.details != NO_DETAILS:
        return False
    if len(jobs) == 1:
        return True
    task, rest = first.task, first[3:]
    return all(job[1] == task and job[3:] == rest for job in jobs)
