"""Waiting for the end of a flow or batch."""

from __future__ import annotations

import time

from tidemill.domain.join_counts import GROUP_ENDS
from tidemill.stores.base import Listener
from tidemill.stores.wakeup_messages import CHANGE

_TOPICS = frozenset({GROUP_ENDS, CHANGE})


def await_groups(listener: Listener, seconds: float) -> None:
    """Wait until some flow, map or batch has ended, or for this time. The ends of single jobs are not reported here."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        topics = listener.wait(left)
        if not topics or topics & _TOPICS:
            return
