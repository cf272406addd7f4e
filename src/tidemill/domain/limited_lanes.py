"""A worker's memory of limited lanes that are worth requesting.

A lane that returned no job sleeps: its limits are full, or no job waits in it. It wakes when the worker itself releases a slot
of one of its limits, or when the store's state is read again. If no waiting job took over the last released slot, only the
latter wakes it. The store's state is authoritative; this is only bookkeeping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from tidemill.domain.job import Claim
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import LimitKind, Rules, rule_of

MOST = 5_000
"""Maximum number of lanes to remember."""

REST, LONGEST_REST = 0.005, 0.5
"""Seconds for which an open lane that returned nothing is not requested: initially, and at most."""


class LimitedLanes:
    """The known limited lanes, in request order: tenants in rotation, and each tenant's lanes by priority.

    A lane may be empty for one set of tasks and not for another, so each set needs its own instance. They share ``held``, the
    worker's own use of each limit.
    """

    def __init__(self, held: dict[str, int] | None = None) -> None:
        self._lanes: dict[LaneKey, Lane] = {}
        self._awake: dict[str, dict[int, deque[LaneKey]]] = {}  # by tenant and priority
        self._asleep: dict[LaneKey, None] = {}
        self._sleepers: dict[str, dict[LaneKey, None]] = {}  # by limit
        self._empty: set[LaneKey] = set()
        self._rests: dict[
            LaneKey, tuple[float, float]
        ] = {}  # until when it is not requested, and for how long
        self._gave: set[LaneKey] = set()  # returned a job since their last rest of maximum length
        self._asking = 0
        self._held = {} if held is None else held

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def lanes(self) -> list[Lane]:
        """All known lanes."""
        return list(self._lanes.values())

    @property
    def waiting(self) -> bool:
        """Whether a sleeping lane may have waiting jobs."""
        return bool(self._asleep)

    @property
    def asking(self) -> bool:
        """Whether a requested lane has not answered yet."""
        return self._asking > 0

    def seen(
        self, lanes: Iterable[Lane], closed: Collection[LaneKey] = (), now: float = float("inf")
    ) -> None:
        """Record lanes just read from the store; all but the closed ones have room.

        An open lane that returned nothing, for example because only other tasks wait in it, is requested again after a rest.
        """
        for lane in lanes:
            key = lane.key
            known = key in self._lanes
            self._lanes[key] = lane
            self._empty.discard(key)
            if key in closed:
                if not known:
                    self._sleep(key)
                elif key in self._rests and key in self._gave:
                    # The full limit may explain the empty answer, so the next rest must not be longer than this one.
                    until, rest = self._rests[key]
                    self._rests[key] = (until, max(rest / 2, REST / 2))
            elif not known:
                self._push(key)
            elif now >= self._rests.get(key, (0.0, 0.0))[0]:
                self._wake(key)
        if len(self._lanes) > MOST:
            for key in list(self._asleep)[: len(self._lanes) - MOST]:
                self._forget(key)

    def gone(self, open_lanes: Collection[LaneKey]) -> None:
        """Forget sleeping lanes that are not among all lanes just read: no job waits in them."""
        for key in [key for key in self._asleep if key not in open_lanes]:
            self._forget(key)

    def ask(self, most: int, rules: Rules) -> list[Lane]:
        """The next lanes to request; the caller reports the result with ``answered``."""
        asked: list[Lane] = []
        tenants = list(self._awake)
        while tenants and len(asked) < most:
            going: list[str] = []
            for tenant in tenants[: most - len(asked)]:
                lane = self._next(tenant, rules)
                if lane is not None:
                    asked.append(lane)
                    going.append(tenant)
            tenants = going
        if len(self._awake) > 1:  # rotate the tenants
            first = next(iter(self._awake))
            self._awake[first] = self._awake.pop(first)
        self._asking += len(asked)
        return asked

    def _next(self, tenant: str, rules: Rules) -> Lane | None:
        """The next lane of a tenant that is worth requesting, by descending priority."""
        lines = self._awake[tenant]
        for priority in sorted(lines, reverse=True):
            line = lines[priority]
            while line:
                key = line.popleft()
                if key not in self._empty and not self._is_full(self._lanes[key], rules):
                    return self._lanes[key]
                self._sleep(key)
            del lines[priority]
        del self._awake[tenant]
        return None

    def _push(self, key: LaneKey) -> None:
        self._awake.setdefault(key.tenant, {}).setdefault(key.priority, deque()).append(key)

    def answered(
        self, asked: Sequence[Lane], claims: Sequence[Claim], *, more: bool, now: float = 0.0
    ) -> bool:
        """Record the claims from these lanes; ``more`` if the worker's room limited them. Returns whether a lane gave none."""
        gave = {(claim.queue, claim.tenant, claim.priority, claim.limits or ()) for claim in claims}
        silent = False
        self._asking = max(self._asking - len(asked), 0)
        for lane in asked:
            given = (lane.queue, lane.tenant, lane.priority, lane.limits) in gave
            if given:
                self._gave.add(lane.key)
            if more or given:
                self._rests.pop(lane.key, None)
                self._push(lane.key)
            else:
                silent = True
                self._sleep(lane.key)
                rest = min(2 * self._rests.get(lane.key, (0.0, REST / 2))[1], LONGEST_REST)
                self._rests[lane.key] = (now + rest, rest)
                if rest >= LONGEST_REST:
                    self._gave.discard(lane.key)
        return silent

    def emptied(self, keys: Iterable[LaneKey]) -> None:
        """Record that these lanes have no waiting jobs."""
        self._empty.update(key for key in keys if key in self._lanes)

    def waits(self, name: str, but: Lane) -> bool:
        """Whether a lane other than this one waits for a limit."""
        sleepers = self._sleepers.get(name)
        return sleepers is not None and len(sleepers) > (but.key in sleepers)

    def freed(self, counted: Mapping[str, int]) -> None:
        """Wake as many lanes that wait for these limits as slots were released."""
        for name, number in counted.items():
            if name in self._sleepers:
                able = (key for key in self._sleepers[name] if key not in self._empty)
                for key in list(islice(able, number)):
                    self._wake(key)

    def _is_full(self, lane: Lane, rules: Rules) -> bool:
        """Whether this worker alone uses up one of the lane's limits."""
        for name in lane.limits:
            held = self._held.get(name)
            if held:
                rule = rule_of(name, rules)
                if rule is not None and rule.kind is LimitKind.CONCURRENCY and 0 < rule.max <= held:
                    return True
        return False

    def _sleep(self, key: LaneKey) -> None:
        self._asleep[key] = None
        for name in self._lanes[key].limits:
            self._sleepers.setdefault(name, {})[key] = None

    def _wake(self, key: LaneKey) -> None:
        if key in self._asleep:
            self._rouse(key)
            self._push(key)

    def _rouse(self, key: LaneKey) -> None:
        del self._asleep[key]
        for name in self._lanes[key].limits:
            sleepers = self._sleepers[name]
            del sleepers[key]
            if not sleepers:
                del self._sleepers[name]

    def _forget(self, key: LaneKey) -> None:
        self._rouse(key)
        self._empty.discard(key)
        self._rests.pop(key, None)
        self._gave.discard(key)
        del self._lanes[key]
