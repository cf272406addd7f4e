"""The delivery of a signal in PostgreSQL: one transaction of two round trips."""

from __future__ import annotations

from datetime import datetime

from tidemill.domain.signals import NewSignal, Posted
from tidemill.stores.signals import Delivered, Receiver
from tidemill.stores.sql.control import move_call
from tidemill.stores.sql.driver import QueryCall, Turn, Turns
from tidemill.stores.sql.signals import signals_call, wakes
from tidemill.stores.sql.store import SqlStore


class SignalDelivery(SqlStore):
    """Base of the PostgreSQL store."""

    def deliver_signal(self, signal: NewSignal, *, now: datetime | None = None) -> Delivered:
        return self._db.run_turns(lambda: _delivery_turns(signal, now))


def _delivery_turns(signal: NewSignal, now: datetime | None) -> Turns[Delivered]:
    """Store the signal and look for its receiver, then wake that and commit."""
    # The second statement sees the signal of the first.
    look = QueryCall("receivers", {"ids": [signal.job_id]})
    ((_, text),), rows = yield Turn([signals_call([signal], now), look])
    answer = Posted(text)
    if answer is not Posted.ACCEPTED or not rows:
        return Delivered(answer, [])
    (moved,) = yield Turn([move_call(wakes(rows), now)], last=True)
    woken = {row[0] for row in moved}
    return Delivered(answer, [Receiver(id, queue) for id, _, queue in rows if id in woken])
