"""The part of the store contract for deployments of an app.

24. **A write of a release record is a compare-and-set** of its ``revision``, which rises by one with each write. An app has one
    record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime

from tidemill.domain.releases import ReleaseRecord


class ReleaseStore(ABC):
    """The deployment that last wrote an app's declared schedules."""

    @abstractmethod
    def release_of(self, app: str) -> ReleaseRecord | None:
        """The record of this app, if there is one."""

    @abstractmethod
    def put_release(self, record: ReleaseRecord, *, now: datetime | None = None) -> bool:
        """Write the record over the revision that it names (0: a new one), seen now; False if the stored revision differs."""
