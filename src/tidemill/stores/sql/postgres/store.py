"""The PostgreSQL store: the SQL store with combined statements for the hot path."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.deals import DealRequest
from tidemill.domain.job import Claim, Finish
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import ENDLESS, LimitKind, names_of, rule_of
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.subscriptions import watched_finishes
from tidemill.stores.base import StepResult
from tidemill.stores.sql.driver import QueryCall, QueryPipeline, Row
from tidemill.stores.sql.failures import failure_flags
from tidemill.stores.sql.lifecycle import (
    FinishColumns,
    are_full,
    claim_takes,
    claims_of,
    done_columns,
    end_columns,
    finish_call,
    gated_columns,
    lane_columns,
    wants,
)
from tidemill.stores.sql.postgres.end_counts import PostgresEndCounts
from tidemill.stores.sql.postgres.enqueue import PostgresEnqueue
from tidemill.stores.sql.postgres.signal_delivery import SignalDelivery
from tidemill.stores.step_pipeline import StepPipeline

_LOST = 18  # column of ``step``; that of the worker in ``deal``


class PostgresStore(PostgresEnqueue, PostgresEndCounts, SignalDelivery):
    """A store in PostgreSQL."""

    def step(
        self, finishes: Sequence[Finish], request: ClaimRequest, *, now: datetime | None = None
    ) -> StepResult:
        if not finishes:
            return StepResult(frozenset(), self.claim(request, now=now))
        if not wants(request):
            return StepResult(self.finish(finishes, now=now), [])
        if self._is_watched(finishes):
            return super().step(finishes, request, now=now)
        if any(lane.gate or lane.limits for lane in request.lanes):
            return self._step_counted(finishes, request, now)
        call = plain_step(finishes, request, now)
        if call is None:
            if any(item.tied for item in finishes) and _alone(finishes):
                return self._step_tied(finishes, request, now)
            return super().step(finishes, request, now=now)
        return self._again(finishes, _stepped(self._db.run(*call), request), now)

    def deal(
        self, finishes: Sequence[Finish], request: DealRequest, *, now: datetime | None = None
    ) -> StepResult:
        call = plain_deal(request, now)
        if call is None or (finishes and (self._is_watched(finishes) or not _alone(finishes))):
            return super().deal(finishes, request, now=now)
        if not finishes:
            return StepResult(frozenset(), dealt_rows(self._db.run(*call), request))
        counted = ("counted",) if any(item.claim.limits is not None for item in finishes) else ()
        lost, rows = self._db.run_together([finish_call(finishes, now, *counted, "plain"), call])
        step = StepResult(frozenset(row[0] for row in lost), dealt_rows(rows, request))
        return self._again(finishes, step, now)

    def _is_watched(self, finishes: Sequence[Finish]) -> bool:
        """Whether an event must be written with one of these finishes, which a combined statement cannot do."""
        return bool(self.subscriptions) and bool(watched_finishes(self.subscriptions, finishes))

    def _again(self, finishes: Sequence[Finish], step: StepResult, now: datetime | None) -> StepResult:
        """The step, after another try of the jobs it lost: a plain statement leaves tied jobs alone."""
        if not step.lost:
            return step
        return step._replace(lost=self._finish_again(finishes, step.lost, now))

    def steps_ahead(self) -> StepPipeline | None:
        ahead = self._db.ahead()
        return None if ahead is None else _StepPipeline(ahead, self._again, self._is_watched)

    # Jobs with limits ----------------------------------------------------------------------------------------------------

    def _step_counted(
        self, finishes: Sequence[Finish], request: ClaimRequest, now: datetime | None
    ) -> StepResult:
        bound = any(item.then or item.tied or item.additions is not None for item in finishes)
        counted = None if bound else counted_claim(request, now)
        if request.handoff:
            handoff = None if counted is None else _handoff_step(finishes, request, counted)
            if handoff is None:
                return super().step(finishes, request, now=now)
            return self._again(finishes, _stepped(self._db.run(*handoff), request), now)
        if counted is None:
            return super().step(finishes, request, now=now)
        calls = [finish_call(finishes, now, "counted", "plain"), counted.opening(), counted.call]
        lost, _, rows = self._db.run_together(calls)
        step = StepResult(frozenset(row[0] for row in lost), claims_of(rows, request))
        return self._again(finishes, step, now)

    def _finish_counted(
        self, finishes: Sequence[Finish], now: datetime | None, *flags: str
    ) -> frozenset[UUID]:
        return frozenset(row[0] for row in self._db.run(*finish_call(finishes, now, "counted", *flags)))

    def _claim_counted(
        self, request: ClaimRequest, now: datetime | None, back: Mapping[str, int] | None = None
    ) -> list[Claim]:
        counted = counted_claim(request, now)
        if counted is None or request.handoff:
            return super()._claim_counted(request, now, back)
        _, rows = self._db.run_together([counted.opening(), counted.call])
        return claims_of(rows, request)


class CountedClaim(NamedTuple):
    """A claim under concurrency limits as one statement, with the names of these limits and their maxima."""

    call: QueryCall
    names: list[str]
    maxima: list[int]

    def opening(self) -> QueryCall:
        """The call that inserts missing counts of the names first; a statement does not see its own inserts."""
        return QueryCall("open_uses", {"now": self.call.takes["now"], "names": self.names})


class _StepPipeline:
    """Steps of jobs that have no limits and that end."""

    def __init__(
        self,
        ahead: QueryPipeline,
        again: Callable[[Sequence[Finish], StepResult, datetime | None], StepResult],
        is_watched: Callable[[Sequence[Finish]], bool],
    ) -> None:
        self._ahead = ahead
        self._again = again
        self._is_watched = is_watched
        self._sent: deque[tuple[Sequence[Finish], ClaimRequest]] = deque()

    def send(self, finishes: Sequence[Finish], request: ClaimRequest) -> bool:
        if not finishes or not wants(request) or any(lane.gate or lane.limits for lane in request.lanes):
            return False
        if self._is_watched(finishes):
            return False
        call = plain_step(finishes, request, None)
        if call is None or not self._ahead.send(call):
            return False
        self._sent.append((finishes, request))
        return True

    @property
    def file(self) -> int:
        return self._ahead.file

    def answered(self) -> bool:
        return self._ahead.answered()

    def receive(self) -> StepResult:
        finishes, request = self._sent.popleft()
        return self._again(finishes, _stepped(self._ahead.receive(), request), None)


def plain_step(finishes: Sequence[Finish], request: ClaimRequest, now: datetime | None) -> QueryCall | None:
    """The step as one statement.

    None if a job is released, has a unique key, limits or follow-up jobs, or belongs to another worker; and if jobs that keep less
    than everything end together with jobs that failed.
    """
    batch = FinishColumns.of(finishes)
    others = batch.others
    if (
        any(batch.following)
        or any(batch.tied)
        or any(batch.additions)
        or any(transition.state not in ENDED for transition in others)
    ):
        return None
    plain = [claim.worker for claim in batch.claims if claim.unique_key is None and claim.limits is None]
    if len(plain) < len(batch.claims) or not _are_all(request.worker, plain):
        return None
    takes = claim_takes(request, now) | lane_columns(request.lanes)
    full = are_full(batch.keep)
    if not others and full:
        return QueryCall("step_done", takes, done_columns(batch))
    if not others:
        columns = done_columns(batch)
        columns["keep"] = list(batch.keep)
        return QueryCall("step_done", takes, columns, ("light",))
    if not full:
        return None
    columns = end_columns(batch)
    return QueryCall("step", takes, columns, failure_flags(columns))


def plain_deal(request: DealRequest, now: datetime | None) -> QueryCall | None:
    """The deal as one statement. None if it can return nothing, or a lane has limits."""
    if (
        not request.asks
        or any(lane.gate or lane.limits for lane in request.lanes)
        or not wants(request.claim())
    ):
        return None
    takes = {
        "now": now,
        "state": JobState.RUNNING if request.start else JobState.CLAIMED,
        "tasks": request.tasks,
        "ask_worker": [ask.worker for ask in request.asks],
        "ask_limit": [ask.limit for ask in request.asks],
        **lane_columns(request.lanes),
    }
    return QueryCall("deal", takes)


def dealt_rows(rows: Sequence[Row], request: DealRequest) -> list[Claim]:
    """The claims of a deal, in the order of the lanes and by number within each."""
    workers = {row[0]: row[_LOST] for row in rows}
    claims = claims_of([row[:_LOST] for row in rows], request.claim()) if rows else []
    return [claim._replace(worker=workers[claim.id]) for claim in claims]


def _alone(finishes: Sequence[Finish]) -> bool:
    """Whether these finishes write nothing but the ends of their jobs, and count what waits for them."""
    return not any(item.then or item.additions is not None for item in finishes)


def counted_claim(request: ClaimRequest, now: datetime | None) -> CountedClaim | None:
    """The claim as one statement; None if a limit is not a concurrency limit, or not one of the jobs' own."""
    maxima: dict[str, int] = {}
    pairs: list[tuple[int, str]] = []
    quotas: list[int] = []
    for place, lane in enumerate(request.lanes, start=1):
        if lane.limits != names_of(lane.gate):
            return None
        for name in dict.fromkeys(lane.limits):
            if name not in maxima:
                rule = rule_of(name, request.rules)
                if rule is not None and rule.kind is not LimitKind.CONCURRENCY:
                    return None
                maxima[name] = rule.max if rule is not None and rule.max > 0 else ENDLESS
            pairs.append((place, name))
        quotas.append(min([lane.quota, *[maxima[name] for name in lane.limits]]))
    takes = claim_takes(request, now) | {
        "pair_lane": [place for place, _ in pairs],
        "pair_name": [name for _, name in pairs],
        "pair_max": [maxima[name] for _, name in pairs],
    }
    columns = gated_columns(request.lanes)
    columns |= {"lane_quota": quotas, "lane_counts": [bool(lane.limits) for lane in request.lanes]}
    return CountedClaim(QueryCall("claim_counted", takes, columns), list(maxima), list(maxima.values()))


def _handoff_step(
    finishes: Sequence[Finish], request: ClaimRequest, counted: CountedClaim
) -> QueryCall | None:
    """The step as one statement.

    None if a job is released, has a unique key, keeps less than everything, or belongs to another worker or to no lane.
    """
    batch = FinishColumns.of(finishes)
    if not _are_all(request.worker, [claim.worker for claim in batch.claims]) or not are_full(batch.keep):
        return None
    places = {
        (lane.queue, lane.tenant, lane.priority, lane.limits): place
        for place, lane in enumerate(request.lanes, start=1)
    }
    lanes: list[int | None] = [
        places.get((item.claim.queue, item.claim.tenant, item.claim.priority, item.claim.limits or ()))
        for item in finishes
    ]
    if None in lanes or not all(
        item.transition.state in ENDED and item.claim.unique_key is None for item in finishes
    ):
        return None
    ended = Counter(lanes)
    claim = counted.call.takes
    takes = {
        **{name: claim[name] for name in ("now", "worker", "state", "tasks", "pair_lane", "pair_name")},
        **gated_columns(request.lanes),
        "names": counted.names,
        "maxima": counted.maxima,
        "lane_quota": [ended[place] for place in range(1, len(request.lanes) + 1)],
    }
    columns = end_columns(batch)
    return QueryCall("step_handoff", takes, {**columns, "lane": lanes}, failure_flags(columns))


def _are_all(worker: UUID, workers: list[UUID | None]) -> bool:
    """Whether all claims belong to this worker, so that a statement can fence them with one parameter."""
    # ``count`` compares identities first. Claims carry the UUID object of their request, and comparing UUIDs is slow.
    return workers.count(worker) == len(workers)


def _stepped(rows: Sequence[Row], request: ClaimRequest) -> StepResult:
    lost = [row[_LOST] for row in rows if row[_LOST] is not None]
    claimed = [row[:_LOST] for row in rows if row[_LOST] is None]
    return StepResult(frozenset(lost), claims_of(claimed, request))
