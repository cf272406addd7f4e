"""Sources of an archive run: the live tables of a store, or one tier of a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from uuid import UUID

from tidemill.archive.places import ArchivePlace
from tidemill.domain.retention import ArchivedJob, Position, Selection
from tidemill.stores.base import Store


class JobSource(Protocol):
    """Where the jobs of a policy are before they move."""

    @property
    def store(self) -> Store | None:
        """The store whose transactions ``drop`` joins; None for a place outside of a store."""

    def due(self, selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        """Return the documents to move, labelled with their policy and their new tier."""

    def beyond(self, selection: Selection, newest: int) -> Position | None:
        """Return the last ended job of a selection without its ``newest`` ones; None if there are no others."""

    def drop(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete the originals of these documents, each only if it is unchanged. Returns the deleted ids."""


@dataclass(frozen=True, slots=True)
class LiveSource:
    """The live tables of a store."""

    store: Store

    def due(self, selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        """Return ended jobs as documents."""
        return self.store.archivable(selection, policy=policy, tier=tier)

    def beyond(self, selection: Selection, newest: int) -> Position | None:
        """Return the last ended job of a selection without its ``newest`` ones."""
        return self.store.ended_beyond(selection, newest)

    def drop(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete jobs with their executions and logs, each only if it is unchanged since the copy."""
        return self.store.forget(documents)


@dataclass(frozen=True, slots=True)
class TierSource:
    """One tier of a place. ``stays`` is true if the place is the target too: writing the new tier moves the document."""

    place: ArchivePlace
    tier: str
    stays: bool

    @property
    def store(self) -> Store | None:
        """The store of the place."""
        return self.place.store

    def due(self, selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        """Return documents with the new tier."""
        return [replace(document, policy=policy, tier=tier) for document in self.place.due(selection)]

    def beyond(self, selection: Selection, newest: int) -> Position | None:
        """Return the last ended job of a selection without its ``newest`` ones."""
        return self.place.beyond(selection, newest)

    def drop(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete the documents of the old tier, unless the target has replaced them."""
        if self.stays:
            return frozenset(document.id for document in documents)
        return self.place.remove([replace(document, tier=self.tier) for document in documents])
