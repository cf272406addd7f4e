"""Handlers of durable subscriptions that receive several events at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from tidemill.tasks.events import Event


class BatchHandler(ABC):
    """A handler of a durable subscription that receives several events at once, at most one of each job."""

    shown: str  #: where events go, without a password

    @abstractmethod
    def handle(self, events: Sequence[Event]) -> Mapping[int, str]:
        """Handle the events; returns errors by the number of the event. Raises ``StoreUnavailable`` if none can be handled."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    def __call__(self, event: Event) -> None:
        """Handle one event, as any other handler."""
        for error in self.handle([event]).values():
            raise RuntimeError(error)
