"""What a worker knows of the lanes behind gates: which may have something for it, and which are not worth asking just now.

A gate that gave nothing sleeps: its limits are full, or nobody stands behind it any more. It is woken when the worker itself gives
back what fills one of its limits, and when the store was looked at anew; where nobody took over from the last one who ended, only
by that look. Pure bookkeeping; what is true, only the store knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice

from tidemill.domain.job import Claim
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import LimitKind, Rules, rule_of

MOST = 5_000
"""Gates that are kept in mind."""


class Gates:
    """The gates a worker has heard of, in the order in which it asks them: by priority, and in turn within one.

    Whoever asks for other tasks finds other gates silent: each needs a memory of its own. ``held``, what the worker itself has in
    hand of each limit, is common to them.
    """

    def __init__(self, held: dict[str, int] | None = None) -> None:
        self._lanes: dict[LaneKey, Lane] = {}
        self._awake: dict[int, deque[LaneKey]] = {}
        self._asleep: dict[LaneKey, None] = {}
        self._sleepers: dict[str, dict[LaneKey, None]] = {}  # by limit
        self._empty: set[LaneKey] = set()
        self._held = {} if held is None else held

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def lanes(self) -> list[Lane]:
        """All of them."""
        return list(self._lanes.values())

    @property
    def waiting(self) -> bool:
        """Whether a gate sleeps behind which somebody may stand."""
        return bool(self._asleep)

    def seen(self, lanes: Iterable[Lane], closed: Collection[LaneKey] = ()) -> None:
        """These were just found; all but the closed ones have room."""
        for lane in lanes:
            key = lane.key
            known = key in self._lanes
            self._lanes[key] = lane
            self._empty.discard(key)
            if key in closed:
                if not known:
                    self._sleep(key)
            elif not known:
                self._awake.setdefault(lane.priority, deque()).append(key)
            else:
                self._wake(key)
        if len(self._lanes) > MOST:
            for key in list(self._asleep)[: len(self._lanes) - MOST]:
                self._forget(key)

    def gone(self, found: Collection[LaneKey]) -> None:
        """All there are were just found: the others have nobody behind them."""
        for key in [key for key in self._asleep if key not in found]:
            self._forget(key)

    def ask(self, most: int, rules: Rules) -> list[Lane]:
        """The next gates to ask; whoever asks says ``answered`` afterwards."""
        asked: list[Lane] = []
        for priority in sorted(self._awake, reverse=True):
            line = self._awake[priority]
            while line and len(asked) < most:
                key = line.popleft()
                lane = self._lanes[key]
                if key in self._empty or self._is_full(lane, rules):
                    self._sleep(key)
                else:
                    asked.append(lane)
            if not line:
                del self._awake[priority]
        return asked

    def answered(self, asked: Sequence[Lane], claims: Sequence[Claim], *, more: bool) -> bool:
        """What these gave; ``more`` where they might have given more, had there been room here. Whether one gave nothing."""
        gave = {(claim.queue, claim.tenant, claim.priority, claim.limits or ()) for claim in claims}
        silent = False
        for lane in asked:
            if more or (lane.queue, lane.tenant, lane.priority, lane.limits) in gave:
                self._awake.setdefault(lane.priority, deque()).append(lane.key)
            else:
                silent = True
                self._sleep(lane.key)
        return silent

    def emptied(self, keys: Iterable[LaneKey]) -> None:
        """Nobody was found behind these."""
        self._empty.update(key for key in keys if key in self._lanes)

    def waits(self, name: str, but: Lane) -> bool:
        """Whether another gate than this one is known to wait for a limit."""
        sleepers = self._sleepers.get(name)
        return sleepers is not None and len(sleepers) > (but.key in sleepers)

    def freed(self, counted: Mapping[str, int]) -> None:
        """So much of these limits is given back: as many gates that wait for them are asked again."""
        for name, number in counted.items():
            if name in self._sleepers:
                able = (key for key in self._sleepers[name] if key not in self._empty)
                for key in list(islice(able, number)):
                    self._wake(key)

    def _is_full(self, lane: Lane, rules: Rules) -> bool:
        """Whether this worker alone fills one of its limits."""
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
            self._awake.setdefault(key.priority, deque()).append(key)

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
        del self._lanes[key]
