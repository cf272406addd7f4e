"""The PostgreSQL store: as the SQL store, but a batch of jobs that ended for good goes with the next claim in one statement."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tidemill.domain.job import Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ENDED
from tidemill.stores.base import Step
from tidemill.stores.sql.flow import claim_takes, claims_of, end_columns, lane_columns, wants
from tidemill.stores.sql.store import SqlStore

_LOST = 18  # its place in a row of ``step``


class PostgresStore(SqlStore):
    """A store in PostgreSQL."""

    def step(self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None) -> Step:
        if not finishes:
            return Step(frozenset(), self.claim(request, now=now))
        if not wants(request):
            return Step(self.finish(finishes, now=now), [])
        if not all(item.transition.state in ENDED and item.claim.unique_key is None for item in finishes):
            return super().step(finishes, request, now=now)
        takes = claim_takes(request, now) | lane_columns(request.lanes)
        rows = self._db.run("step", takes, end_columns(finishes))
        lost = [row[_LOST] for row in rows if row[_LOST] is not None]
        claimed = [row[:_LOST] for row in rows if row[_LOST] is None]
        return Step(frozenset(lost), claims_of(claimed, request))
