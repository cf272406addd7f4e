"""What to ask the store for: the lanes there are, less what is paused, as requests for a claim. It claims nothing itself."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.gates import Gates
from tidemill.domain.job import Claim
from tidemill.domain.lanes import SAFETY, ClaimRequest, Lane, LaneKey, Watermarks, shared
from tidemill.domain.ledger import PauseKind
from tidemill.domain.limits import LimitKind, Rule, Rules, count, gate_of, opens_at, room, rule_of
from tidemill.domain.turns import Turns, first_numbers
from tidemill.engine.config import Config
from tidemill.engine.finisher import Settled
from tidemill.engine.node import machine_name, own_queue, serves
from tidemill.engine.plan import Plan, Planner
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

REFRESH = 1.0
"""Seconds between two readings of the lanes while there is work; more where a reading is slow."""

RUNG = 0.2
"""The share of that time after which a worker that is busy and hears of new work reads them again."""

PAUSES = 5.0
"""Seconds the pauses and the limits are believed when nobody says that they changed."""

PAGE = 500
"""Gates that are read at once."""

TURN = 0.05
"""Seconds for which those behind one gate may take over from each other while others wait for the same limit."""

SOONEST, LATEST = 0.02, 1.0
"""Seconds after which gates that gave nothing are looked at again, the first time and at most."""


class Claimer:
    """Knows the lanes, the gates, the limits and the pauses, as of their last reading.

    Whatever queues a worker was given, it also takes from its node's own queue, and never from that of another node.
    """

    def __init__(
        self, store: Store, clock: Clock, worker: UUID, queues: tuple[str, ...] | None, planner: Planner
    ) -> None:
        self._store, self._clock, self._worker = store, clock, worker
        self._node = machine_name()
        self._queues = None if queues is None else (*queues, own_queue(self._node))
        self._planner = planner
        self._lock = threading.Lock()
        self._marks = Watermarks()
        self._paused: frozenset[tuple[PauseKind, str]] = frozenset()
        self._config = Config()
        self._rules: dict[str, Rule] = {}
        self._lane_limits = False  # a limit for a whole queue or tenant is among the rules
        self._held: dict[str, int] = {}  # by limit
        self._turned: dict[str, float] = {}  # when others than its heirs last had their turn, by limit
        self._turns = Turns()
        self._gates: dict[tuple[str, ...], Gates] = {}  # by the kinds of tasks that were asked for
        self._after: LaneKey | None = None
        self._barren, self._reading = (
            0,
            0.0,
        )  # pages of gates in a row that gave nothing; seconds the last one took
        self._again, self._retry_at = SOONEST, float("inf")
        self._read_at = self._pauses_at = float("-inf")
        self._pause = REFRESH

    def is_stale(self) -> bool:
        """Whether the lanes were read too long ago for a worker that is busy, or it is time for another look at the gates."""
        now = self._clock.monotonic()
        return now - self._read_at >= self._pause or now >= self._retry_at

    def is_old(self) -> bool:
        """Whether the lanes were read so long ago that somebody who rang may not be among them."""
        return self._clock.monotonic() - self._read_at >= RUNG * self._pause

    @property
    def must_look(self) -> bool:
        """Whether somebody changed something: then nothing is claimed before it is known what."""
        return self._pauses_at == float("-inf")

    @property
    def read_at(self) -> float:
        """When the lanes were last read, by the monotonic clock."""
        return self._read_at

    @property
    def retry_at(self) -> float:
        """When gates that were closed are to be looked at again, by the monotonic clock."""
        return self._retry_at

    @property
    def rules(self) -> Rules:
        """What is limited, as of the last look."""
        return self._rules

    @property
    def counts(self) -> bool:
        """Whether anything is limited at all."""
        return bool(self._rules)

    def forget_pauses(self) -> None:
        """Somebody changed something: the pauses and the limits are read again with the lanes."""
        self._pauses_at = float("-inf")

    # Reading -------------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the lanes, and the pauses and limits if it is time."""
        begun = self._clock.monotonic()
        if begun - self._pauses_at >= PAUSES:
            self._pauses_at = (
                begun  # before they are read: whoever changes them meanwhile has them read again
            )
            try:
                pauses, settings, rules = self._store.orders()
                self._paused = frozenset((pause.kind, pause.name) for pause in pauses)
                self._configure(Config.read(settings))
                self._learn(rules)
            except BaseException:
                self.forget_pauses()
                raise
        lanes = [lane for lane in self._store.lanes(self._queues) if serves(lane.queue, self._node)]
        if self._rules:
            self._read_gates()
        with self._lock:
            self._read_at = self._clock.monotonic()
            self._marks.seen(lanes, self._read_at)
            self._pause = max(REFRESH, 50 * (self._read_at - begun))

    def _configure(self, config: Config) -> None:
        if config.enabled != self._config.enabled:
            _log.warning(
                "the worker is %s", "enabled again" if config.enabled else "disabled: it claims nothing"
            )
        self._config = config

    @property
    def config(self) -> Config:
        """What operators have set, as of the last look."""
        return self._config

    def _learn(self, rules: Sequence[Rule]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._lane_limits = any(name.partition("/")[0] in ("queue", "tenant") for name in self._rules)

    def _read_gates(self) -> None:
        """Read one page of the gates, and what is used of their limits."""
        self._retry_at, begun = float("inf"), self._clock.monotonic()
        page = self._store.gates(self._queues, limit=PAGE, after=self._after)
        found = [self._limited(lane) for lane in page if serves(lane.queue, self._node)]
        names = list(dict.fromkeys(name for lane in found for name in lane.limits))
        closed: set[str] = set()
        soonest = float("inf")
        for use in self._store.uses(self._rules, names) if names else ():
            rule = rule_of(use.name, self._rules)
            now = use.now or self._clock.now()
            if room(rule, use, now) <= 0:
                closed.add(use.name)
                at = opens_at(rule, use, now)
                if at is not None:
                    soonest = min(soonest, (at - now).total_seconds())
        with self._lock:
            self._barren, self._reading = self._barren + 1, self._clock.monotonic() - begun
            # Behind the whole page, also where all of it is other nodes': what lies beyond must be come to.
            first, self._after = self._after, page[-1].key if len(page) == PAGE else None
            self._turns.seen(
                (lane for lane in found if not closed.intersection(lane.limits)), anew=first is None
            )
            for gates in self._gates.values() or (self._gates_for(()),):
                gates.seen(found, {lane.key for lane in found if closed.intersection(lane.limits)})
                if first is None and self._after is None:
                    gates.gone({lane.key for lane in found})
            self._look_again(soonest)

    def _gates_for(self, kinds: tuple[str, ...]) -> Gates:
        """What is known of the gates for tasks of these kinds; at first, that they are there."""
        found = self._gates.get(kinds)
        if found is None:
            known = next(iter(self._gates.values()), None)
            found = self._gates[kinds] = Gates(self._held)
            if known is not None:
                found.seen(known.lanes)
        return found

    def _limited(self, lane: Lane) -> Lane:
        """The lane with the limits of its queue and its tenant."""
        if not self._lane_limits:
            return lane
        more = (f"queue/{lane.queue}", f"tenant/{lane.tenant}")
        found = [name for name in more if name not in lane.limits and rule_of(name, self._rules) is not None]
        return lane._replace(limits=(*lane.limits, *found)) if found else lane

    def _look_again(self, soonest: float = float("inf")) -> None:
        """Set the time for another look: the less is found, the later; or exactly when time opens a gate. While there are pages
        that were not looked at, the next one comes at once, or after a rest that grows with those that gave nothing.
        """
        now = self._clock.monotonic()
        if self._after is not None:
            self._retry_at = now + min(self._reading * self._barren, LATEST, max(soonest, 0.0))
        elif any(gates.waiting for gates in self._gates.values()):
            self._retry_at = now + min(self._again, max(soonest, 0.0))
            self._again = min(2 * self._again, LATEST)

    # Asking --------------------------------------------------------------------------------------------------------------

    def requests(self, plan: Plan, *, remembered: bool = False) -> Iterator[ClaimRequest]:
        """The plan as claims: one for what is counted and one for what is not, before which comes one with everybody's share where
        several tenants wait. None where nothing is known to wait, or all of it is paused. Each gets what is left of the plan.

        What is counted comes last where it is not its turn yet; whoever has enough by then does not ask for it.
        """
        tasks, plain, counted, later = self._sorted(plan, remembered=remembered)
        if not tasks:
            return
        if counted and plain and len({lane.priority for lane in (*counted, *plain)}) > 1:
            # The order of priorities is kept by asking for all at once, which is slower.
            lanes = sorted((*counted, *plain), key=lambda lane: -lane.priority)
            yield ClaimRequest(self._worker, lanes, plan.limit, tasks, plan.start, self._rules)
            return
        if counted:
            limit = max(plan.limit // 2, 1) if plain else plan.limit
            yield ClaimRequest(self._worker, counted, limit, tasks, plan.start, self._rules)
        if plain:
            request = ClaimRequest(self._worker, plain, plan.limit, tasks, plan.start)
            if len(plain) > 1 and plan.limit > 1:
                fair = shared(plain, plan.limit, self._config.weights)
                if fair != plain:
                    yield request._replace(lanes=fair)
            yield request
        if later:
            with self._lock:
                counted = self._ask_gates(plan)
            if counted:
                yield ClaimRequest(self._worker, counted, plan.limit, tasks, plan.start, self._rules)

    def _sorted(self, plan: Plan, *, remembered: bool) -> tuple[Sequence[str], list[Lane], list[Lane], bool]:
        """The tasks to ask for (none: nothing is), the lanes without limits and those with; whether the gates come later."""
        with self._lock:
            if remembered:
                self._marks.remember()
            tasks = self._tasks(plan.kinds)
            if not tasks or not self._config.enabled or (PauseKind.ALL, "") in self._paused:
                return (), [], [], False
            plain, counted = self._unpaused(), []
            if self._lane_limits:
                limited = [self._limited(lane) for lane in plain]
                counted = [lane for lane in limited if lane.limits]
                plain = [lane for lane in limited if not lane.limits]
            gated = bool(self._rules)
            later = gated and self._turns.plenty(plan.kinds) and self._turns.come_later(plain)
            if gated and not later:
                counted += self._ask_gates(plan)
            return tasks, plain, counted, later

    def _unpaused(self) -> list[Lane]:
        """The lanes that are known and not paused, in claiming order."""
        ageing = self._config.ageing
        found = self._marks.lanes(at=self._clock.monotonic() if ageing else 0.0, ageing=ageing)
        return [lane for lane in found if self._goes(lane)]

    def _ask_gates(self, plan: Plan) -> list[Lane]:
        gates = self._gates_for(plan.kinds)
        asked = gates.ask(plan.limit, self._rules)
        gates.answered([lane for lane in asked if not self._goes(lane)], (), more=False)
        return [lane for lane in asked if self._goes(lane)]

    def _goes(self, lane: Lane) -> bool:
        """Whether nothing the lane belongs to is paused."""
        return not self._paused or (
            (PauseKind.QUEUE, lane.queue) not in self._paused
            and (PauseKind.TENANT, lane.tenant) not in self._paused
        )

    def _tasks(self, kinds: Iterable[str]) -> Sequence[str]:
        """Only tasks this worker knows: the others wait for one who does."""
        names = [name for kind in kinds for name in self._planner.kinds[kind].tasks]
        if not self._paused:
            return names
        return [name for name in names if (PauseKind.TASK, name) not in self._paused]

    def claimed(self, plan: Plan, request: ClaimRequest, claims: Sequence[Claim]) -> None:
        """Raise the marks, and remember which gates gave nothing."""
        with self._lock:
            if not request.rules:
                self._marks.claimed(claims)
                self._turns.gave(plan.kinds, full=len(claims) >= request.limit)
                return
            self._marks.claimed([claim for claim in claims if not claim.limits])
            asked = [lane for lane in request.lanes if lane.gate]
            if claims:
                self._again, self._barren = SOONEST, 0
                self._turns.took(claim for claim in claims if claim.limits)
                for name, number in count(claim.limits for claim in claims).items():
                    self._held[name] = self._held.get(name, 0) + number
            if self._gates_for(plan.kinds).answered(asked, claims, more=len(claims) >= request.limit):
                self._look_again()

    def failed(self, plan: Plan, request: ClaimRequest) -> None:
        """It is not known what this request gave."""
        if request.rules:
            with self._lock:
                self._held.clear()
                asked = [lane for lane in request.lanes if lane.gate]
                self._gates_for(plan.kinds).answered(asked, (), more=True)

    # Heirs ---------------------------------------------------------------------------------------------------------------

    def heirs(self, settled: Sequence[Settled]) -> ClaimRequest | None:
        """A request for those who stand behind the same gates as these, which have ended: they take over what is given back. None
        where others wait for the same limits and it is their turn, or where a limit is of another kind than how many are held.
        """
        with self._lock:
            now = self._clock.monotonic()
            newest: dict[tuple[str, str, int, tuple[str, ...]], int] = {}
            for item in settled:
                claim = item.claim
                key = (claim.queue, claim.tenant, claim.priority, claim.limits or ())
                newest[key] = max(newest.get(key, 0), claim.seq or 0)
            lanes = [
                Lane(*key[:3], max(seq - SAFETY, 0), gate=gate_of(key[3]), limits=key[3])
                for key, seq in newest.items()
            ]
            kinds = {item.held.kind for item in settled}
            tasks = self._tasks(kinds)
            if not self._config.enabled or (PauseKind.ALL, "") in self._paused or not tasks:
                return None
            if not all(self._goes(lane) and self._is_plain(lane) for lane in lanes):
                return None
            if self._is_others_turn(lanes, now):
                return None
            if self._turns.plenty(kinds):
                ended = first_numbers(item.claim for item in settled)
                if self._turns.come_later(self._unpaused(), ended):
                    return None
            return ClaimRequest(self._worker, lanes, len(settled), tasks, rules=self._rules, inherits=True)

    def _is_plain(self, lane: Lane) -> bool:
        """Whether all its limits are on how many are held, and are its own."""
        if self._lane_limits and self._limited(lane) != lane:
            return False
        for name in lane.limits:
            rule = rule_of(name, self._rules)
            if rule is not None and rule.kind is not LimitKind.CONCURRENCY:
                return False
        return True

    def _is_others_turn(self, lanes: Sequence[Lane], now: float) -> bool:
        """Whether other gates wait for one of these limits, and have done so for long enough."""
        waited = False
        for gates in self._gates.values():
            for lane in lanes if gates.waiting else ():
                for name in lane.limits:
                    if gates.waits(name, lane) and now - self._turned.get(name, float("-inf")) >= TURN:
                        self._turned[name] = now
                        waited = True
        return waited

    def given_back(
        self, settled: Sequence[Settled], request: ClaimRequest | None, claims: Sequence[Claim]
    ) -> bool:
        """These ends are written, and these took over from them: whether anything is left for others."""
        if request is not None and len(claims) >= len(settled):
            return False
        counted = count(item.claim.limits for item in settled)
        with self._lock:
            for name, number in counted.items():
                left = self._held.get(name, 0) - number
                self._held.pop(name, None)
                if left > 0:
                    self._held[name] = left
            empty = _without_heirs(settled, request, claims) if request is not None else ()
            for gates in self._gates.values():
                gates.emptied(empty)
                gates.freed(counted)
            if empty:
                self._look_again()
        return True


def _without_heirs(
    settled: Sequence[Settled], request: ClaimRequest, claims: Sequence[Claim]
) -> list[LaneKey]:
    """The lanes of the request that gave fewer than ended: nobody is left in them, or others are at it just now."""
    ended = Counter((c.queue, c.tenant, c.priority, c.limits) for c in (item.claim for item in settled))
    ended.subtract((c.queue, c.tenant, c.priority, c.limits) for c in claims)
    return [
        lane.key for lane in request.lanes if ended[lane.queue, lane.tenant, lane.priority, lane.limits] > 0
    ]
