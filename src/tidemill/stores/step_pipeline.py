"""Steps sent ahead: a worker sends a step before the previous one is answered.

The database then need not wait for the worker. Each step is atomic and fenced like any ``step``, and steps run in the order in
which they were sent. The result of one says nothing about the next: ``receive`` reports a lost answer or an error for exactly one
step, as ``step`` would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tidemill.domain.job import Finish
from tidemill.domain.lanes import ClaimRequest

if TYPE_CHECKING:
    from tidemill.stores.base import StepResult


class StepPipeline(Protocol):
    """A channel on which one thread sends steps and receives their answers, oldest first."""

    def send(self, finishes: Sequence[Finish], request: ClaimRequest) -> bool:
        """Send a step without waiting. False: this step cannot be sent this way, or not now, and nothing was sent."""

    @property
    def file(self) -> int:
        """The file descriptor that becomes readable when an answer may have arrived, while a step is in flight."""

    def answered(self) -> bool:
        """Whether ``receive`` would return without waiting."""

    def receive(self) -> StepResult:
        """Wait for the answer to the oldest step in flight."""
