"""Planner of claim requests.

It selects lanes that are neither paused nor blocked by a limit. It claims nothing itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from tidemill.domain.job import Claim
from tidemill.domain.lanes import SAFETY, ClaimRequest, Lane, LaneKey
from tidemill.domain.limited_turns import first_numbers
from tidemill.domain.limits import (
    LimitKind,
    count,
    gate_of,
    is_rate,
    rule_of,
)
from tidemill.domain.records import PauseKind
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.lane_reader import SOONEST, LaneReader
from tidemill.engine.exchange.planner import SOON, ClaimPlan
from tidemill.engine.exchange.start_deadlines import startable

_log = logging.getLogger("tidemill.engine")

TURN = 0.05
"""Seconds for which jobs behind one gate may hand slots to each other while other gates wait for the same limit."""

RESERVE, RESERVE_AGAIN = 0.015, 0.06
"""Seconds before a rate limit reopens during which one free slot is reserved, and the minimum time between reservations."""

RATE_AGAIN = 0.002
"""Seconds until the next look at a rate limit that gave fewer jobs than requested."""


class Claimer(LaneReader):
    """Plans claim requests and records what each of them returned. It claims nothing itself."""

    # Requests ------------------------------------------------------------------------------------------------------------

    def requests(self, plan: ClaimPlan, *, remembered: bool = False) -> Iterator[ClaimRequest]:
        """Turn the plan into claim requests: one for lanes with limits, and one per page of lanes without limits.

        If several tenants wait, the first page without limits gives each tenant a share. There are no requests if no
        lane has waiting jobs or if all lanes are paused. Each request gets the rest of the plan.

        Lanes with limits come last while older jobs without limits are waiting. The caller stops asking once the plan
        is full.
        """
        tasks, plain, counted, later = self._sorted(plan, remembered=remembered)
        if tasks and not self._rules:
            for page in self._pages(plan.limit):
                yield ClaimRequest(self._worker, page, plan.limit, tasks, plan.start)
            return
        if self._rates and not counted and not self._gates_for(plan.kinds).asking:
            self._planner.hold_back(plan, held_back=False)
        reserved = bool(plain) and not counted and not later and self._reserves(plan)
        plan = plan._replace(limit=plan.limit - reserved)
        if not tasks or not plan.limit:
            return
        if counted and plain and _is_one_tenants(counted, plain):
            # One request for all lanes keeps the order of priorities. It is slower than separate requests.
            lanes = sorted((*counted, *plain), key=lambda lane: -lane.priority)
            limit = self._startable(counted, plan, plan.limit)
            yield ClaimRequest(self._worker, lanes, limit, tasks, plan.start, self._rules)
            if limit == plan.limit:
                return
            counted = []
        if counted:
            limit = self._startable(counted, plan, max(plan.limit // 2, 1) if plain else plan.limit)
            yield ClaimRequest(self._worker, counted, limit, tasks, plan.start, self._rules)
        if plain:
            for page in self._pages(plan.limit):
                yield ClaimRequest(self._worker, page, plan.limit, tasks, plan.start)
        if later:
            with self._lock:
                counted = self._ask_gates(plan)
            if counted:
                limit = self._startable(counted, plan, plan.limit)
                yield ClaimRequest(self._worker, counted, limit, tasks, plan.start, self._rules)

    def _reserves(self, plan: ClaimPlan) -> bool:
        """Whether to leave one of the plan's slots free because a rate limit reopens very soon.

        Any other job would occupy the slot for longer than that. Reservations are rare enough that jobs without limits
        keep running.
        """
        if not self._planner.rated:
            return False
        now = self._clock.monotonic()
        kinds = [self._planner.kinds[name] for name in plan.kinds]
        if any((kind.mean or 0.0) <= SOON for kind in kinds):
            return False  # jobs are short, so a slot becomes free in time anyway
        with self._lock:
            opens_in_a_moment = now < self._rate_opens_at <= now + RESERVE
            reserved_at = self._reserved_at.get(plan.kinds, float("-inf"))
            if not opens_in_a_moment or now - reserved_at < RESERVE_AGAIN:
                return False
            self._reserved_at[plan.kinds] = now
            return True

    def _startable(self, lanes: Sequence[Lane], plan: ClaimPlan, limit: int) -> int:
        return startable(lanes, self._rules, limit, plan.free) if self._rates else limit

    def _sorted(
        self, plan: ClaimPlan, *, remembered: bool
    ) -> tuple[Sequence[str], list[Lane], list[Lane], bool]:
        """Return the tasks to request, the lanes without limits, the lanes with limits, and whether gates come later.

        An empty sequence of tasks means that nothing is requested.
        """
        with self._lock:
            if remembered:
                self._marks.remember()
            tasks = self._tasks(plan.kinds)
            if not tasks or not self._config.enabled or (PauseKind.ALL, "") in self._paused:
                return (), [], [], False
            gated = bool(self._rules)
            plain, counted = self._unpaused() if gated else [], []
            if self._lane_limits:
                limited = [self._limited(lane) for lane in plain]
                counted = [lane for lane in limited if lane.limits]
                plain = [lane for lane in limited if not lane.limits]
            later = gated and self._turns.plenty(plan.kinds) and self._turns.come_later(plain)
            if gated and not later:
                counted += self._ask_gates(plan)
            return tasks, plain, counted, later

    def _unpaused(self) -> list[Lane]:
        """The known lanes that are not paused, in claiming order."""
        ageing = self._config.ageing
        at = self._clock.monotonic() if ageing else 0.0
        found = self._marks.lanes(at=at, ageing=ageing, by_prefix=self._config.share_groups)
        return [lane for lane in found if self._goes(lane)]

    def _pages(self, limit: int) -> Iterator[list[Lane]]:
        """The lanes without limits that are not paused, in claiming order, in pages of bounded size."""
        config = self._config
        with self._lock:
            pages = self._marks.pages(
                limit,
                at=self._clock.monotonic() if config.ageing else 0.0,
                ageing=config.ageing,
                weights=config.weights,
                by_prefix=config.share_groups,
                goes=self._goes_unlimited if self._paused or self._lane_limits else None,
            )
            page = next(pages, None)
        while page is not None:
            yield page
            with self._lock:
                page = next(pages, None)

    def _goes_unlimited(self, key: LaneKey) -> bool:
        return self._goes(key) and not self._limited(Lane(*key[:3])).limits

    def _ask_gates(self, plan: ClaimPlan) -> list[Lane]:
        gates = self._gates_for(plan.kinds)
        asked = gates.ask(plan.limit, self._rules)
        gates.answered([lane for lane in asked if not self._goes(lane)], (), more=False)
        return [lane for lane in asked if self._goes(lane)]

    def _goes(self, lane: Lane | LaneKey) -> bool:
        """Whether neither the queue nor the tenant of the lane is paused."""
        return not self._paused or (
            (PauseKind.QUEUE, lane.queue) not in self._paused
            and (PauseKind.TENANT, lane.tenant) not in self._paused
        )

    def _tasks(self, kinds: Iterable[str]) -> Sequence[str]:
        """The names of this worker's unpaused tasks of the given kinds.

        Jobs of other tasks wait for a worker that has them.
        """
        paused = {name for kind, name in self._paused if kind is PauseKind.TASK}
        return [name for kind in kinds for name in self._planner.kinds[kind].unpaused(paused)]

    def claimed(self, plan: ClaimPlan, request: ClaimRequest, claims: Sequence[Claim]) -> None:
        """Advance the watermarks, and record which gates returned no jobs."""
        with self._lock:
            if not request.rules:
                self._marks.claimed(claims)
                self._marks.served(claims, self._config.weights, by_prefix=self._config.share_groups)
                self._turns.gave(plan.kinds, full=len(claims) >= request.limit)
                return
            self._marks.claimed([claim for claim in claims if not claim.limits])
            asked = [lane for lane in request.lanes if lane.gate]
            if self._rates:
                self._planner.hold_back(plan, held_back=len(claims) >= request.limit)
            if claims:
                self._again, self._barren = SOONEST, 0
                self._turns.took(claim for claim in claims if claim.limits)
                for name, number in count(claim.limits for claim in claims).items():
                    self._held[name] = self._held.get(name, 0) + number
            gates, more = self._gates_for(plan.kinds), len(claims) >= request.limit
            if gates.answered(asked, claims, more=more, now=self._clock.monotonic()):
                # The next reading shows when the rate limit reopens. Or another runner was updating its count, and
                # capacity is left.
                self._look_again(RATE_AGAIN if self._rates else float("inf"))

    def skipped(self, plan: ClaimPlan, request: ClaimRequest) -> None:
        """Record that this request was not sent because other requests filled the free slots."""
        with self._lock:
            self._planner.hold_back(plan, held_back=True)
            asked = [lane for lane in request.lanes if lane.gate]
            self._gates_for(plan.kinds).answered(asked, (), more=True)

    def failed(self, plan: ClaimPlan, request: ClaimRequest) -> None:
        """Record that the result of this request is unknown."""
        if request.rules:
            with self._lock:
                self._held.clear()
                asked = [lane for lane in request.lanes if lane.gate]
                self._gates_for(plan.kinds).answered(asked, (), more=True)

    # Handoff of limit slots ----------------------------------------------------------------------------------------------

    def handoff_request(self, settled: Sequence[Settled]) -> ClaimRequest | None:
        """Build a request for jobs behind the same gates as these finished jobs, which reuse the limit slots they release.

        Return None if other gates wait for the same limits and it is their turn, or if a limit is not a concurrency
        limit.
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
            return ClaimRequest(self._worker, lanes, len(settled), tasks, rules=self._rules, handoff=True)

    def _is_plain(self, lane: Lane) -> bool:
        """Whether all limits of the lane are concurrency limits, and none comes from its queue or tenant."""
        if self._lane_limits and self._limited(lane) != lane:
            return False
        for name in lane.limits:
            rule = rule_of(name, self._rules)
            if rule is not None and rule.kind is not LimitKind.CONCURRENCY:
                return False
        return True

    def _is_others_turn(self, lanes: Sequence[Lane], now: float) -> bool:
        """Whether other gates wait for one of these limits and have waited for at least ``TURN``."""
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
        """Record that these results are written and these jobs took over their slots; return whether slots are left."""
        if request is not None and len(claims) >= len(settled):
            return False
        counted = count(item.claim.limits for item in settled)
        with self._lock:
            for name, number in counted.items():
                left = self._held.get(name, 0) - number
                self._held.pop(name, None)
                if left > 0:
                    self._held[name] = left
            empty = _unfilled_lanes(settled, request, claims) if request is not None else ()
            # A finished job returns no capacity to a rate limit.
            if self._rates:
                counted = {
                    name: number
                    for name, number in counted.items()
                    if not is_rate(rule_of(name, self._rules))
                }
            for gates in self._gates.values():
                gates.emptied(empty)
                gates.freed(counted)
            if empty:
                self._look_again()
        return bool(counted)


def _is_one_tenants(counted: Sequence[Lane], plain: Sequence[Lane]) -> bool:
    """Whether the lanes have one tenant and several priorities, whose order must be kept.

    Several tenants take turns instead.
    """
    lanes = (*counted, *plain)
    return len({lane.priority for lane in lanes}) > 1 and len({lane.tenant for lane in lanes}) == 1


def _unfilled_lanes(
    settled: Sequence[Settled], request: ClaimRequest, claims: Sequence[Claim]
) -> list[LaneKey]:
    """The lanes of the request that returned fewer jobs than finished.

    They are empty, or another runner is claiming from them.
    """
    ended = Counter((c.queue, c.tenant, c.priority, c.limits) for c in (item.claim for item in settled))
    ended.subtract((c.queue, c.tenant, c.priority, c.limits) for c in claims)
    return [
        lane.key for lane in request.lanes if ended[lane.queue, lane.tenant, lane.priority, lane.limits] > 0
    ]
