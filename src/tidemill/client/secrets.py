"""``app.secrets``: which keys seal stored values, and their rotation.

Every method has an asynchronous twin with the prefix ``a``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple
from uuid import UUID

from tidemill.client._base import async_twin
from tidemill.client.access import TenantApi
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.large_values import is_reference
from tidemill.domain.sealed_values import PLACES, SealChange, SealedRow, sealed_values
from tidemill.errors import BadArguments, BadSettings, StoreError
from tidemill.stores.large_values import read_value
from tidemill.tasks.secret_values import key_ring, resealed

BATCH = 100
"""Rows that one statement reads, and at most as many that one transaction changes."""

PASSES = 10
"""How often a rotation reads everything: jobs that move to another state during a pass are found in the next."""


class SealStatus(NamedTuple):
    """How many stored values each key seals."""

    counts: dict[str, int]  #: by the name of the key
    active: str | None  #: the key that seals new values in this process
    missing: tuple[str, ...]  #: keys that seal stored values, and that this process does not have


class Rotation(NamedTuple):
    """The result of a rotation."""

    active: str  #: the key that seals the values now
    read: int  #: rows that were looked at
    resealed: int  #: values that were sealed with another key
    not_resealed: int  #: values that keep their key: large ones, and those whose key is missing


class Secrets(TenantApi):
    """The sealed values of a store, of all tenants. Archived jobs are not counted and not changed."""

    def status(self) -> SealStatus:
        """Count the stored values by the key that seals them."""
        counts: Counter[str] = Counter()
        for rows in self._batches():
            for row in rows:
                for column, text in _texts(row):
                    counts.update(value.key for value in sealed_values(row, column, self._whole(text)))
        try:
            ring = key_ring()
        except BadSettings:  # a process without keys can still count
            return SealStatus(dict(counts), None, tuple(sorted(counts)))
        return SealStatus(dict(counts), ring.active, tuple(sorted(set(counts) - set(ring.names))))

    def rotate(self, on_batch: Callable[[Rotation], None] | None = None) -> Rotation:
        """Seal every stored value with the first key again, in small batches.

        Workers and clients continue to use the store. A rotation that was interrupted is continued by the next one, which skips the
        values that are done.
        """
        done = Rotation(key_ring().active, 0, 0, 0)
        for _ in range(PASSES):
            before = done.resealed
            done = self._pass(done._replace(not_resealed=0), on_batch)
            if done.resealed == before:
                break
        self._note(
            "secrets.rotated",
            f"encryption key:{done.active}",
            ALL_TENANTS,
            after={"resealed": done.resealed, "not_resealed": done.not_resealed},
        )
        return done

    def _pass(self, done: Rotation, on_batch: Callable[[Rotation], None] | None) -> Rotation:
        for rows in self._batches():
            changes: list[SealChange] = []
            not_resealed = 0
            for row in rows:
                made, left = self._changes(row)
                changes += made
                not_resealed += left
            number = self._store.reseal(changes)
            queues = {row.queue for row in rows if row.part == "ready"} if changes else set()
            if queues:
                # A claim skips rows that are locked for the moment.
                self._tell([f"ready:{queue}" for queue in sorted(queues)])
            done = Rotation(
                done.active, done.read + len(rows), done.resealed + number, done.not_resealed + not_resealed
            )
            if on_batch is not None:
                on_batch(done)
        return done

    def _changes(self, row: SealedRow) -> tuple[list[SealChange], int]:
        """The texts of a row with values sealed by the first key, and the number of values that keep theirs."""
        changes: list[SealChange] = []
        not_resealed = 0
        active = key_ring().active
        for column, text in _texts(row):
            new = text
            for value in sealed_values(row, column, self._whole(text)):
                if value.key == active:
                    continue
                if is_reference(text):
                    not_resealed += 1
                    continue
                try:
                    new = new.replace(value.text, resealed(value.text, value.owner, value.field))
                except BadArguments:
                    not_resealed += 1
            if new != text:
                changes.append(SealChange(row, column, text, new))
        return changes, not_resealed

    def _whole(self, text: str) -> str:
        """The text itself, or the large value that it refers to."""
        if not is_reference(text):
            return text
        try:
            return read_value(self._store, text)
        except StoreError:
            return ""

    def _batches(self) -> Iterator[list[SealedRow]]:
        for place in PLACES:
            after: tuple[UUID, str] | None = None
            while rows := self._store.sealed_rows(place, after, BATCH):
                yield rows
                after = rows[-1].cursor

    # Async twins -------------------------------------------------------------------------------------------------------

    astatus = async_twin(status)
    arotate = async_twin(rotate)


def _texts(row: SealedRow) -> Iterator[tuple[Literal["args", "result"], str]]:
    if row.args is not None:
        yield "args", row.args
    if row.result is not None:
        yield "result", row.result
