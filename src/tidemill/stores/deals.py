"""The part of the store contract for claims of several workers at once.

Law 39. **A deal gives jobs only to workers that asked.** Each gets at most its limit, and nothing without a live lease. The jobs are
distributed by their numbers, one for each worker in the order of the asks, then a second one for each that wants more. Everything
else is as in a ``step``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.domain.deals import DealRequest
from tidemill.domain.job import Finish

if TYPE_CHECKING:
    from tidemill.stores.base import StepResult


class DealStore(ABC):
    """Claims for several workers, which a hub makes for its hands."""

    @abstractmethod
    def deal(
        self, finishes: Sequence[Finish], request: DealRequest, *, now: datetime | None = None
    ) -> StepResult:
        """``finish`` one batch, of any workers, and claim jobs for several workers, in one transaction."""
