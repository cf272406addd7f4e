"""The log lines of running jobs that are not in the store yet.

The buffer is bounded in lines and bytes, and so is the log of each execution. Dropped lines are counted, and a note in
the job's log states how many are missing and why. The caller must serialize all calls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import LogEntry
from tidemill.engine.exchange.held_job import HeldJob

Line = tuple[HeldJob, LogEntry]

MIB = 1024 * 1024

MOST, MOST_BYTES = 100_000, 64 * MIB
"""Capacity of the buffer. Beyond it the oldest lines are dropped."""

PRESSED, PRESSED_BYTES = 20_000, 16 * MIB
"""Fill level at which threads that log have to wait."""

LOG_LINES, LOG_BYTES = 200_000, 64 * MIB
"""Maximum size of the log of one execution."""

BATCH, BATCH_BYTES = 5_000, 4 * MIB
"""Maximum size of one write to the store."""

AWAY = "the store did not answer"
FAST = "they came faster than the store could write them"

_OVERHEAD = 64


@dataclass(slots=True)
class _Volume:
    """The amount that one execution has logged so far."""

    token: int
    lines: int = 0
    size: int = 0
    full: bool = False


@dataclass(slots=True)
class _Loss:
    """Lines of one execution that were dropped since the last note about it."""

    held: HeldJob
    at: datetime
    lines: int
    reasons: set[str]


@dataclass(frozen=True)
class _Note(LogEntry):
    """The line that stands for dropped lines."""

    missing: int = 0
    reasons: frozenset[str] = frozenset()


def size_of(entry: LogEntry) -> int:
    """The approximate size of a line in bytes.

    Every line is measured, so the text is not encoded for it: a character outside ASCII counts as one byte.
    """
    details = 0 if entry.details is None else len(json.dumps(entry.details, default=str))
    return _OVERHEAD + len(entry.message) + details


class LogBuffer:
    """Lines in the order they were logged."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._size = 0
        self._losses: dict[UUID, _Loss] = {}
        self._volumes: dict[UUID, _Volume] = {}

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def idle(self) -> bool:
        """Whether the buffer has no data about any job."""
        return not (self._lines or self._losses or self._volumes)

    @property
    def pressed(self) -> bool:
        """Whether lines are logged faster than they are written."""
        return len(self._lines) >= PRESSED or self._size >= PRESSED_BYTES

    def add(self, held: HeldJob, entry: LogEntry, reason: str = FAST) -> None:
        """Add one line, unless the log of its execution is full.

        ``reason`` is recorded for lines that have to be dropped.
        """
        size = size_of(entry)
        volume = self._volumes.get(held.claim.id)
        if volume is None or volume.token != held.claim.token:
            volume = self._volumes[held.claim.id] = _Volume(held.claim.token)
        if volume.full:
            return
        if volume.lines >= LOG_LINES or volume.size + size > LOG_BYTES:
            volume.full = True
            text = (
                f"the log of this execution is full ({LOG_LINES:,} lines or {LOG_BYTES // MIB} MiB);"
                " lines after this one are not stored"
            )
            entry = LogEntry(entry.job_id, entry.number, entry.at, text, "warning", worker=entry.worker)
            size = size_of(entry)
        volume.lines += 1
        volume.size += size
        self._lines.append((held, entry))
        self._size += size
        self._trim(reason)

    def _trim(self, reason: str) -> None:
        if len(self._lines) <= MOST and self._size <= MOST_BYTES:
            return
        dropped = 0
        # Drop more lines than necessary, so that the list is not moved for every new line.
        while len(self._lines) - dropped > MOST * 0.9 or self._size > MOST_BYTES * 0.9:
            held, entry = self._lines[dropped]
            self._size -= size_of(entry)
            self._lose(held, entry, reason)
            dropped += 1
        del self._lines[:dropped]

    def _lose(self, held: HeldJob, entry: LogEntry, reason: str) -> None:
        loss = self._losses.get(held.claim.id)
        if loss is None or loss.held is not held:
            loss = self._losses[held.claim.id] = _Loss(held, entry.at, 0, set())
        loss.at = entry.at
        loss.reasons.add(reason)
        # The lines that the note stands for are still missing.
        if isinstance(entry, _Note):
            loss.lines += entry.missing
            loss.reasons |= entry.reasons
        else:
            loss.lines += 1

    def take(self, ending: frozenset[UUID] = frozenset()) -> list[Line]:
        """The lines to write now, preceded by the notes about dropped lines, which were older.

        The row of a job is locked while its user's transaction completes it. Its lines stay here, unless the job is
        ``ending``.
        """
        lines = [(loss.held, _note(loss)) for loss in self._losses.values()] + self._lines
        self._losses, self._lines, self._size = {}, [], 0
        if not any(held.completes for held, _ in lines):
            return lines
        now = [line for line in lines if not line[0].completes or line[0].claim.id in ending]
        self._lines = [line for line in lines if line[0].completes and line[0].claim.id not in ending]
        self._size = sum(size_of(entry) for _, entry in self._lines)
        return now

    def of(self, held: HeldJob) -> list[LogEntry]:
        """The lines of one execution that are still here."""
        return [entry for owner, entry in self._lines if owner is held]

    def put_back(self, lines: Sequence[Line], reason: str) -> None:
        """Return lines that were taken and could not be written."""
        self._lines[:0] = lines
        self._size += sum(size_of(entry) for _, entry in lines)
        self._trim(reason)

    def holds(self, jobs: frozenset[UUID]) -> bool:
        """Whether there are lines or notes to write about one of these jobs."""
        return not jobs.isdisjoint(self._losses) or any(held.claim.id in jobs for held, _ in self._lines)

    def end(self, jobs: Iterable[UUID]) -> None:
        """Discard the volume counters of executions that have ended."""
        for job in jobs:
            self._volumes.pop(job, None)

    def forget(self, jobs: set[UUID]) -> None:
        """Drop everything about these jobs without a note."""
        self._lines = [line for line in self._lines if line[0].claim.id not in jobs]
        self._size = sum(size_of(entry) for _, entry in self._lines)
        for job in jobs:
            self._losses.pop(job, None)
        self.end(jobs)


def batches(lines: Sequence[Line]) -> Iterator[Sequence[Line]]:
    """Split the lines into batches of a size that suits a store."""
    start = size = 0
    for place, (_, entry) in enumerate(lines):
        size += size_of(entry)
        if place > start and (place - start >= BATCH or size > BATCH_BYTES):
            yield lines[start:place]
            start, size = place, size_of(entry)
    if start < len(lines):
        yield lines[start:]


def missing(lines: Iterable[Line]) -> tuple[int, frozenset[str]]:
    """The number of dropped lines that the notes among these stand for, and why they were dropped."""
    notes = [entry for _, entry in lines if isinstance(entry, _Note)]
    reasons: frozenset[str] = frozenset().union(*(note.reasons for note in notes))
    return sum(note.missing for note in notes), reasons


def _note(loss: _Loss) -> _Note:
    text = f"{loss.lines:,} log lines before this one were dropped: {' and '.join(sorted(loss.reasons))}"
    claim = loss.held.claim
    return _Note(
        claim.id,
        claim.token,
        loss.at,
        text,
        "warning",
        worker=claim.worker,
        missing=loss.lines,
        reasons=frozenset(loss.reasons),
    )
