"""Steps ahead: a worker sends a step while another is under way, so that the database need not wait for the worker's next word.

Each is a ``step`` like any other, atomic and fenced, and they are done in the order in which they were sent. What becomes of one says
nothing about the next: an answer that is lost, or an error, is told by ``receive`` of just that one, as ``step`` would have told it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tidemill.domain.job import Finish
from tidemill.domain.lanes import ClaimRequest

if TYPE_CHECKING:
    from tidemill.stores.base import Step


class StepsAhead(Protocol):
    """Where one thread sends steps and takes their answers, the oldest first."""

    def send(self, finishes: Sequence[Finish], request: ClaimRequest) -> bool:
        """Send a step and do not wait for it. False: this one cannot go this way, or not now, and nothing was sent."""

    @property
    def file(self) -> int:
        """While something is under way: what can be read when there may be an answer. It may have come earlier."""

    def answered(self) -> bool:
        """Whether ``receive`` would not wait."""

    def receive(self) -> Step:
        """The answer to the oldest step that was sent, waited for."""
