"""Contract of a store: rows with sealed values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.sealed_values import SealChange, SealedPlace, SealedRow


class SealStore(ABC):
    """Texts with sealed values, so that another key can seal them."""

    @abstractmethod
    def sealed_rows(self, place: SealedPlace, after: tuple[UUID, str] | None, limit: int) -> list[SealedRow]:
        """The next ``limit`` rows of a place by id and name, of all tenants, with or without sealed values.

        A text without a sealed value is None, unless it is a reference to a large value. Archived jobs are left out.
        """

    @abstractmethod
    def reseal(self, changes: Sequence[SealChange]) -> int:
        """Replace each text that still is the old one, all in one transaction. Returns how many were.

        A job that has moved to another state since it was read is not found, and stays as it is.
        """
