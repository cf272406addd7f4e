"""A worker's cached view of the store's lanes, limits and pauses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.lanes import Lane, LaneKey, Watermarks
from tidemill.domain.limited_lanes import LimitedLanes
from tidemill.domain.limited_turns import Turns
from tidemill.domain.limits import (
    Rule,
    Rules,
    enforced,
    is_rate,
    opens_at,
    overfull,
    room,
    rule_of,
)
from tidemill.domain.records import PauseKind
from tidemill.engine.exchange.planner import Planner
from tidemill.engine.node import machine_name, own_queues, serves
from tidemill.engine.runtime_settings import RuntimeSettings
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

REFRESH = 1.0
"""Seconds between two readings of the lanes while there is work. A slow reading makes this longer."""

RUNG = 0.2
"""Fraction of that interval after which a busy worker reads the lanes again when it is notified of new work."""

PAUSES = 5.0
"""Seconds for which cached pauses and limits are used without a notification of a change."""

PAGE = 500
"""Maximum number of gates per reading."""

SOONEST, LATEST = 0.02, 1.0
"""Seconds until gates that returned no jobs are read again: initial and maximum delay."""


class LaneReader:
    """Reads the lanes, gates, limits and pauses, and caches them until the next reading.

    A gate is a lane whose jobs share one set of limits. In addition to its configured queues, a worker takes jobs from
    its node's queue and from its own queue. It never takes jobs from the queues of another node or runner.
    """

    def __init__(
        self, store: Store, clock: Clock, worker: UUID, queues: tuple[str, ...] | None, planner: Planner
    ) -> None:
        self._store, self._clock, self._worker = store, clock, worker
        self._node = machine_name()
        self._queues = None if queues is None else (*queues, *own_queues(self._node, worker))
        self._planner = planner
        self._lock = threading.Lock()
        self._marks = Watermarks()
        self._paused: frozenset[tuple[PauseKind, str]] = frozenset()
        self._config = RuntimeSettings()
        self._rules: dict[str, Rule] = {}
        self._lane_limits = False  # the rules include a limit for a whole queue or tenant
        self._rates = False  # the rules include a rate limit
        self._held: dict[str, int] = {}  # slots in use, by limit
        self._turned: dict[str, float] = {}  # by limit: when other gates last had their turn
        self._turns = Turns()
        self._gates: dict[tuple[str, ...], LimitedLanes] = {}  # by the kinds of the requested tasks
        self._after: LaneKey | None = None
        # Consecutive pages of gates without jobs, and the seconds that the last reading took.
        self._barren, self._reading = 0, 0.0
        self._again, self._retry_at = SOONEST, float("inf")
        self._reserved_at: dict[tuple[str, ...], float] = {}  # when a slot was last reserved, by kinds
        self._rate_opens_at = float("inf")  # when an exhausted rate limit has capacity again
        self._read_at = self._pauses_at = float("-inf")
        self._pause = REFRESH

    def is_stale(self) -> bool:
        """Whether a busy worker must read the lanes again, or closed gates are due for another reading."""
        now = self._clock.monotonic()
        return now - self._read_at >= self._pause or now >= self._retry_at

    def is_old(self) -> bool:
        """Whether the lanes were read so long ago that newly notified work may be missing from them."""
        return self._clock.monotonic() - self._read_at >= RUNG * self._pause

    @property
    def must_look(self) -> bool:
        """Whether pauses or limits have changed. Nothing is claimed before they are read again."""
        return self._pauses_at == float("-inf")

    @property
    def read_at(self) -> float:
        """When the lanes were last read, by the monotonic clock."""
        return self._read_at

    @property
    def retry_at(self) -> float:
        """When closed gates are to be read again, by the monotonic clock."""
        return self._retry_at

    @property
    def rules(self) -> Rules:
        """The limit rules as of the last reading."""
        return self._rules

    @property
    def counts(self) -> bool:
        """Whether any limit exists."""
        return bool(self._rules)

    @property
    def rates(self) -> bool:
        """Whether the rules include a rate limit."""
        return self._rates

    def forget_pauses(self) -> None:
        """Discard the cached pauses and limits after a change, so that they are read again with the lanes."""
        self._pauses_at = float("-inf")

    # Reading -------------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the lanes, and also the pauses and limits if they are due."""
        begun = self._clock.monotonic()
        if begun - self._pauses_at >= PAUSES:
            # Set before reading: a change during the reading triggers another one.
            self._pauses_at = begun
            try:
                pauses, settings, rules = self._store.orders()
                self._paused = frozenset((pause.kind, pause.name) for pause in pauses)
                self._configure(RuntimeSettings.read(settings))
                self._learn(rules)
            except BaseException:
                self.forget_pauses()
                raise
        lanes = [lane for lane in self._store.lanes(self._queues) if self._serves(lane)]
        if self._rules:
            self._read_gates()
        else:
            self._planner.rated = False
        with self._lock:
            self._read_at = self._clock.monotonic()
            self._marks.seen(lanes, self._read_at)
            self._pause = max(REFRESH, 50 * (self._read_at - begun))

    def _serves(self, lane: Lane) -> bool:
        return serves(lane.queue, self._node, self._worker)

    def _configure(self, config: RuntimeSettings) -> None:
        if config.enabled != self._config.enabled:
            _log.warning(
                "the worker is %s", "enabled again" if config.enabled else "disabled: it claims nothing"
            )
        self._config = config

    @property
    def config(self) -> RuntimeSettings:
        """The operators' settings as of the last reading."""
        return self._config

    def _learn(self, rules: Sequence[Rule]) -> None:
        self._rules = {rule.name: enforced(rule) for rule in rules}
        self._rates = any(is_rate(rule) for rule in self._rules.values())
        self._lane_limits = any(name.partition("/")[0] in ("queue", "tenant") for name in self._rules)

    def _read_gates(self) -> None:
        """Read one page of the gates, and the current use of their limits."""
        self._retry_at, begun = float("inf"), self._clock.monotonic()
        page = self._store.gates(self._queues, limit=PAGE, after=self._after)
        found = [self._limited(lane) for lane in page if self._serves(lane)]
        names = list(dict.fromkeys(name for lane in found for name in lane.limits))
        rated = self._rates and any(is_rate(rule_of(name, self._rules)) for name in names)
        closed, soonest, rate_opens = self._closed_limits(names)
        shut = {lane.key for lane in found if closed.intersection(lane.limits)}
        with self._lock:
            self._barren, self._reading = self._barren + 1, self._clock.monotonic() - begun
            # Continue after the whole page, even if all of it belongs to other nodes, so that later pages are reached.
            first, self._after = self._after, page[-1].key if len(page) == PAGE else None
            known = self._rate_opens_at if first is not None else float("inf")
            self._rate_opens_at = min(known, self._clock.monotonic() + rate_opens)
            self._planner.rated = rated or (first is not None and self._planner.rated)
            self._turns.seen((lane for lane in found if lane.key not in shut), replace=first is None)
            for gates in self._gates.values() or (self._gates_for(()),):
                gates.seen(found, shut, self._clock.monotonic())
                if first is None and self._after is None:
                    gates.gone({lane.key for lane in found})
            self._look_again(soonest)

    def _closed_limits(self, names: Sequence[str]) -> tuple[set[str], float, float]:
        """Return the limits without room, and the seconds until the first of them, and the first rate, reopens."""
        closed: set[str] = set()
        soonest = rate_opens = float("inf")
        for use in self._store.uses(self._rules, names) if names else ():
            rule = rule_of(use.name, self._rules)
            now = use.now or self._clock.now()
            if room(rule, use, now) > 0 or overfull(rule, use, now) is not None:
                continue
            closed.add(use.name)
            at = opens_at(rule, use, now)
            if at is not None:
                left = (at - now).total_seconds()
                soonest = min(soonest, left)
                rate_opens = min(rate_opens, left) if is_rate(rule) else rate_opens
        return closed, soonest, rate_opens

    def _gates_for(self, kinds: tuple[str, ...]) -> LimitedLanes:
        """The state of the gates for tasks of these kinds; initially all known gates."""
        found = self._gates.get(kinds)
        if found is None:
            known = next(iter(self._gates.values()), None)
            found = self._gates[kinds] = LimitedLanes(self._held)
            if known is not None:
                found.seen(known.lanes)
        return found

    def _limited(self, lane: Lane) -> Lane:
        """The lane with the limits of its queue and its tenant added."""
        if not self._lane_limits:
            return lane
        more = (f"queue/{lane.queue}", f"tenant/{lane.tenant}")
        found = [name for name in more if name not in lane.limits and rule_of(name, self._rules) is not None]
        return lane._replace(limits=(*lane.limits, *found)) if found else lane

    def _look_again(self, soonest: float = float("inf")) -> None:
        """Schedule the next reading of the gates.

        The delay grows while readings return no jobs. If a rate limit reopens soon, the next reading is exactly then.
        While unread pages remain, the next page is read at once, or after a delay that grows with the number of pages
        without jobs.
        """
        now = self._clock.monotonic()
        if self._after is not None:
            self._retry_at = now + min(self._reading * self._barren, LATEST, max(soonest, 0.0))
        elif any(gates.waiting for gates in self._gates.values()):
            # A rate limit reopens at that time, and no earlier.
            if soonest < LATEST:
                self._retry_at, self._again = now + max(soonest, 0.0), SOONEST
                return
            self._retry_at = now + self._again
            self._again = min(2 * self._again, LATEST)
            if self._rate_opens_at > now:
                self._retry_at = min(self._retry_at, self._rate_opens_at)
