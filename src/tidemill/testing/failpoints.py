"""Failpoints: places on the way of a write to the database where a test lets it fail, stop or wait.

Every write passes three places: ``before`` anything of it is sent, ``within`` its transaction after each of its statements, and
``after`` its commit, when whoever asked does not know yet. They stand around a SQL store's driver and nowhere in the product: a
store without them has not so much as a comparison for them.

>>> points = Failpoints()
>>> points.arm(Place.AFTER, lambda: print("committed, and nobody knows"))
>>> points.reach(Place.BEFORE, "finish")
>>> points.reach(Place.AFTER, "finish")
committed, and nobody knows
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from tidemill.stores.sql.driver import Call, Driver, Items, Row, Takes
from tidemill.stores.sql.queries import load
from tidemill.stores.sql.store import SqlStore


class Place(StrEnum):
    """Where on its way a write is."""

    BEFORE = "before"  #: nothing was sent
    WITHIN = "within"  #: a statement was sent and done, and not committed
    AFTER = "after"  #: committed, and the answer was not seen


class Passed(NamedTuple):
    """A place that was passed: of which transaction, counted from one, and by which query."""

    place: Place
    transaction: int
    query: str


class Failpoints:
    """The places that writes pass in the thread that made this, and what happens at one of them."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._armed: tuple[Place, int] | None = None
        self._act: Callable[[], None] = lambda: None
        self._counts: Counter[Place] = Counter()
        self.passed: list[Passed] = []
        self.reached = False  #: what is armed has happened
        self.watching: Callable[[Passed], None] | None = None  #: told of every place

    def arm(self, place: Place, act: Callable[[], None], *, nth: int = 1) -> None:
        """Do this when a write passes this place for the n-th time from now."""
        self._armed, self._act, self.reached = (place, nth), act, False
        self._counts.clear()

    def reach(self, place: Place, query: str) -> None:
        """A write passes this place; for paths of their own, which no driver of ours sees."""
        if threading.get_ident() != self._thread:
            return
        self._counts[place] += 1
        begun = self._counts[Place.BEFORE]
        passed = Passed(place, begun, query)
        self.passed.append(passed)
        if self.watching is not None:
            self.watching(passed)
        if self._armed == (place, self._counts[place]):
            self.reached, self._armed = True, None
            self._act()


class PointedDriver:
    """A driver whose writes pass failpoints. Reads, wake-ups and the schema go straight through."""

    def __init__(self, driver: Driver, dialect: str, points: Failpoints) -> None:
        self._driver, self._points = driver, points
        self._writes = frozenset(name for name, query in load(dialect).items() if writes(query.body))
        self._local = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def _open(self) -> bool:
        return bool(getattr(self._local, "open", False))

    def run(
        self, name: str, takes: Takes | None = None, items: Items | None = None, flags: Iterable[str] = ()
    ) -> list[Row]:
        """As the driver does. A statement that is its own transaction gets one around it, to be stopped within."""
        if self._open:
            rows = self._driver.run(name, takes, items, flags)
            if name in self._writes:
                self._points.reach(Place.WITHIN, name)
            return rows
        if name not in self._writes:
            return self._driver.run(name, takes, items, flags)
        with self.transaction():
            return self.run(name, takes, items, flags)

    def run_together(self, calls: Sequence[Call]) -> list[list[Row]]:
        """As the driver does, one after the other."""
        with self.transaction():
            return [self.run(*call) for call in calls]

    def run_each(self, *_: object) -> None:
        """It cannot be stopped within: whoever asks puts all into one statement."""

    def ahead(self) -> None:
        """Nor can that: whoever asks waits for each of its statements."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As the driver does."""
        if self._open:
            yield
            return
        self._points.reach(Place.BEFORE, "")
        with self._driver.transaction():
            self._local.open = True
            try:
                yield
            finally:
                self._local.open = False
        self._points.reach(Place.AFTER, "")


def writes(sql: str) -> bool:
    """Whether a query changes anything.

    >>> writes("select 1"), writes("with x as (delete from t returning id) select id from x")
    (False, True)
    """
    words = " ".join(line.partition("--")[0] for line in sql.lower().splitlines()).split()
    return not {"insert", "update", "delete", "replace"}.isdisjoint(word.lstrip("(") for word in words)


def give_points(store: SqlStore, points: Failpoints) -> None:
    """Have all writes of this store pass these points from now on."""
    dialect = "sqlite" if store.url.startswith("sqlite") else "postgres"
    store._db = PointedDriver(store._db, dialect, points)
