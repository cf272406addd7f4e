"""Recount: compares joins with their edges, members and ends, and repairs them.

Ends are counted in the transaction that writes them, so this duty has nothing to repair. A repair is a defect, or the work of a worker
of an older version; a log line and a counter report it.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID

from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=60)
_PAGE = 500
_log = logging.getLogger("tidemill.engine")


class RecountJoins:
    """One page of joins for each run, in the order of their ids."""

    def __init__(self, store: Store, *, page: int = _PAGE) -> None:
        self._store, self._page = store, page
        self._after: UUID | None = None
        self.repaired = 0  #: joins that were wrong, since this worker started

    def __call__(self) -> Done:
        page = self._store.recount_joins(after=self._after, limit=self._page)
        self._after = page.after
        if page.repaired:
            self.repaired += len(page.repaired)
            _log.error(
                "repaired %d joins whose counts were wrong, the first of %s",
                len(page.repaired),
                min(page.repaired),
            )
        return Done(len(page.repaired), more=page.after is not None)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("recount", every, self)
