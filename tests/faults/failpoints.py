"""Failpoints: places in a database write where a test makes it fail, stop or wait.

Every write passes three places: ``before`` anything is sent, ``within`` its transaction after each of its statements, and
``after`` its commit, before the caller sees the answer. The failpoints wrap a SQL store's driver; the product contains no code for
them.

>>> points = Failpoints()
>>> points.arm(Failpoint.AFTER, lambda: print("committed, and the caller does not know"))
>>> points.reach(Failpoint.BEFORE, "finish")
>>> points.reach(Failpoint.AFTER, "finish")
committed, and the caller does not know
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, NamedTuple

from tidemill.stores.sql.driver import Driver, Items, QueryCall, Row, T, Takes, Turns, run_one_by_one
from tidemill.stores.sql.named_queries import load
from tidemill.stores.sql.store import SqlStore


class Failpoint(StrEnum):
    """The progress of a write."""

    BEFORE = "before"  #: nothing was sent
    WITHIN = "within"  #: a statement was executed, but not committed
    AFTER = "after"  #: committed, but the caller has no answer


class Passed(NamedTuple):
    """A place that was passed: the number of its transaction, counted from one, and the query."""

    place: Failpoint
    transaction: int
    query: str


class Failpoints:
    """The places that writes of the creating thread pass, and the action at one of them."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._armed: tuple[Failpoint, int] | None = None
        self._act: Callable[[], None] = lambda: None
        self._counts: Counter[Failpoint] = Counter()
        self.passed: list[Passed] = []
        self.reached = False  #: the armed action has happened
        self.watching: Callable[[Passed], None] | None = None  #: called for every place

    def arm(self, place: Failpoint, act: Callable[[], None], *, nth: int = 1) -> None:
        """Run an action when a write passes this place for the n-th time from now."""
        self._armed, self._act, self.reached = (place, nth), act, False
        self._counts.clear()

    def reach(self, place: Failpoint, query: str) -> None:
        """Record that a write passes this place; called directly for writes that do not use the driver."""
        if threading.get_ident() != self._thread:
            return
        self._counts[place] += 1
        begun = self._counts[Failpoint.BEFORE]
        passed = Passed(place, begun, query)
        self.passed.append(passed)
        if self.watching is not None:
            self.watching(passed)
        if self._armed == (place, self._counts[place]):
            self.reached, self._armed = True, None
            self._act()


class PointedDriver:
    """A driver whose writes pass failpoints. Reads, wake-ups and the schema are passed through."""

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
        """Run a query. A statement without a transaction gets one around it, so that it can be stopped within."""
        if self._open:
            rows = self._driver.run(name, takes, items, flags)
            if name in self._writes:
                self._points.reach(Failpoint.WITHIN, name)
            return rows
        if name not in self._writes:
            return self._driver.run(name, takes, items, flags)
        with self.transaction():
            return self.run(name, takes, items, flags)

    def run_together(self, calls: Sequence[QueryCall]) -> list[list[Row]]:
        """Run the queries one after the other."""
        with self.transaction():
            return [self.run(*call) for call in calls]

    def run_turns(self, begin: Callable[[], Turns[T]]) -> T:
        """Run the queries of all turns one after the other."""
        with self.transaction():
            return run_one_by_one(lambda call: self.run(*call), begin())

    def run_each(self, *_: object) -> None:
        """Not supported, because it cannot be stopped within; the caller uses one statement instead."""

    def ahead(self) -> None:
        """Not supported, because it cannot be stopped within; the caller waits for each statement."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction that passes the failpoints."""
        if self._open:
            yield
            return
        self._points.reach(Failpoint.BEFORE, "")
        with self._driver.transaction():
            self._local.open = True
            try:
                yield
            finally:
                self._local.open = False
        self._points.reach(Failpoint.AFTER, "")


def writes(sql: str) -> bool:
    """Whether a query changes anything.

    >>> writes("select 1"), writes("with x as (delete from t returning id) select id from x")
    (False, True)
    >>> writes("select name like '% before delete on %' from t")
    False
    """
    text = " ".join(line.partition("--")[0] for line in sql.lower().splitlines())
    words = re.sub(r"'[^']*'", "''", text).split()
    return not {"insert", "update", "delete", "replace"}.isdisjoint(word.lstrip("(") for word in words)


def give_points(store: SqlStore, points: Failpoints) -> None:
    """Let all writes of this store pass these failpoints from now on."""
    dialect = "sqlite" if store.url.startswith("sqlite") else "postgres"
    store._db = PointedDriver(store._db, dialect, points)
