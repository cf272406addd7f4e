"""Jobs on their way from one store to another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.domain.job import JobRow


@dataclass(frozen=True, slots=True)
class TransferJob:
    """A job that has not begun, with the rule of its unique key."""

    job: JobRow
    until_claimed: bool = False  #: its key is released when a worker claims it
    window_ends_at: datetime | None = None  #: its key is held at least until then
