"""The hub: performs store verbs for hands, and joins the calls of many hands into few statements.

It keeps nothing that another hub would need: the database is the only queue and has every lease. A hand that gets no answer asks
again, and any hub may answer.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.calls import read_calls
from tidemill.domain.deals import Ask
from tidemill.domain.job import Claim, Finish
from tidemill.engine.exchange.result_writer import is_trouble
from tidemill.engine.hub.batches import BatchJoiner
from tidemill.engine.hub.dealer import AskGroup, Dealer
from tidemill.engine.hub.guard import HandGuard
from tidemill.engine.hub.hungry import HungryHands
from tidemill.engine.hub.intake import HandCall, Intake, rounds
from tidemill.engine.hub.keys import HubKeys
from tidemill.engine.listener import TICK, WakeupListener
from tidemill.stores.base import StepResult, Store
from tidemill.stores.hub.codec import decoder
from tidemill.stores.hub.protocol import (
    ASK,
    MERGED,
    HubRefusal,
    HubRequest,
    codec_of,
    error_bytes,
    notice_bytes,
    read_request,
    result_bytes,
)
from tidemill.stores.wakeup_messages import RECONNECTED
from tidemill.stores.wire.base import Answer, HubWire

_log = logging.getLogger("tidemill.hub")

RELAYED = frozenset({TICK, "change", "cancel", RECONNECTED})
"""Wake-ups that every hand gets."""

FEWEST = 2
"""Hands that a wake-up of the database wakes at least: one of them may be gone."""

_MOST_GROUPS = 500
_MOST_ADDRESSES = 100_000
_CALL_THREADS = 2
_FRESH = 1.0  # seconds for which the answer to ``orders`` is used again

_FINISHES = decoder(list[Finish])


class HubCounts(NamedTuple):
    """The work of a hub, in numbers."""

    requests: int
    asked: int  #: asks for jobs
    deals: int  #: transactions that answered them
    dealt: int
    finished: int
    hungry: int


class Hub:
    """Serves the hands of one store over one or several wires. ``start`` it, and ``close`` it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        wires: Sequence[HubWire],
        *,
        environment: str | None = None,
        guard: HandGuard | None = None,
    ) -> None:
        self._store, self._clock, self._wires = store, clock, list(wires)
        self._keys, self._guard = HubKeys(store, clock, environment), guard or HandGuard(store)
        self._dealers: OrderedDict[AskGroup, Dealer] = OrderedDict()
        self._hungry = HungryHands()
        self._where: OrderedDict[UUID, HubWire] = OrderedDict()  # the wires of hands with a valid key
        self._rung = threading.Lock()
        self._wanted: Counter[str] = Counter()  # jobs by queue that the database announced
        self._changed = False
        self._orders: tuple[bytes, float] | None = None
        self.listener = WakeupListener(store, clock)
        self._deals = Intake("deals", self._deal, idle=self._look, refuse=HandCall.fail)
        self._batches = Intake("batches", BatchJoiner(store).serve, refuse=HandCall.fail)
        self._pool = ThreadPoolExecutor(_CALL_THREADS, thread_name_prefix="tidemill-hub-call")
        self._counts = Counter[str]()
        self._closed = False

    def start(self) -> None:
        """Begin to serve. Raises if the store cannot be used, or a broker cannot be reached."""
        self._store.check()
        self._deals.start()
        self._batches.start()
        self.listener.subscribe(self._heard)
        self.listener.start()
        for wire in self._wires:
            wire.serve(self._taker(wire))

    def close(self) -> None:
        """Answer what waits, and disconnect. Hands ask other hubs."""
        self._closed = True
        for wire in self._wires:
            wire.stop_serving()
        self.listener.close()
        self._deals.close()
        self._batches.close()
        self._pool.shutdown()
        for wire in self._wires:
            wire.close()

    def counts(self) -> HubCounts:
        """The numbers of this hub."""
        counts = self._counts
        return HubCounts(
            counts["requests"],
            counts["asked"],
            counts["deals"],
            counts["dealt"],
            counts["finished"],
            len(self._hungry),
        )

    # Requests ------------------------------------------------------------------------------------------------------------

    def _taker(self, wire: HubWire) -> Callable[[bytes, UUID, Answer], None]:
        def take(data: bytes, address: UUID, answer: Answer) -> None:
            """Read a request on the thread of the wire."""
            self._counts["requests"] += 1
            try:
                request = read_request(data, address)
            except HubRefusal as refusal:
                answer(error_bytes(refusal))
                return
            try:
                self._pass_on(request, answer, wire)
            except Exception as error:  # noqa: BLE001  (every error is an answer)
                answer(error_bytes(error))

        return take

    def _pass_on(self, request: HubRequest, answer: Answer, wire: HubWire) -> None:
        caller = self._keys.remembered(request.key)
        if caller is None or (request.verb not in MERGED and request.verb != ASK):
            # A key that must be read, and every other verb, waits for the store.
            self._pool.submit(self._in_pool, request, answer, wire)
            return
        self._queue(self._checked(request, answer), wire)

    def _in_pool(self, request: HubRequest, answer: Answer, wire: HubWire) -> None:
        try:
            call = self._checked(request, answer)
            if call.verb in MERGED or call.verb == ASK:
                self._queue(call, wire)
            else:
                self._perform(call)
        except Exception as error:  # noqa: BLE001  (every error is an answer)
            if not isinstance(error, HubRefusal) and not is_trouble(error):
                _log.debug("a call of a hand failed", exc_info=True)
            answer(error_bytes(error))

    def _checked(self, request: HubRequest, answer: Answer) -> HandCall:
        caller = self._keys.caller(request.key)
        try:
            args = _asked(request.args) if request.verb == ASK else {}
            if request.verb not in (ASK, "check"):
                args = codec_of(request.verb).decode_call(request.args)
            args = self._guard.check(caller, request.verb, args)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise HubRefusal(f"the arguments of {request.verb} are not valid: {error!r}") from None
        return HandCall(caller, request.verb, args, answer, request.address)

    def _queue(self, call: HandCall, wire: HubWire) -> None:
        if call.address is not None:
            self._where[call.address] = wire
            if len(self._where) > _MOST_ADDRESSES:
                self._where.popitem(last=False)
        (self._deals if call.verb == ASK else self._batches).put(call)

    def _perform(self, call: HandCall) -> None:
        """Perform one call that is not joined with others."""
        match call.verb:
            case "check":
                self._store.check()
                call.reply(None)
            case "orders":
                call.answer(self._orders_bytes())
            case _:
                result = getattr(self._store, call.verb)(**call.args)
                call.reply(self._guard.shown(call.caller, call.verb, result))

    def _orders_bytes(self) -> bytes:
        """The settings and rules for hands. The pauses stay here: the hub does not deal what is paused."""
        now = self._clock.monotonic()
        orders = self._orders
        if orders is None or now - orders[1] >= _FRESH:
            orders = self._orders = (result_bytes(self._store.orders()._replace(pauses=[])), now)
        return orders[0]

    # Deals ---------------------------------------------------------------------------------------------------------------

    def _deal(self, calls: Sequence[HandCall]) -> None:
        """Write what these hands finished, and deal jobs to them."""
        wanted = [
            (call, [item.claim.id for item in call.args["finishes"]] + [call.args["worker"]])
            for call in calls
        ]
        for joined in rounds(wanted):
            self._deal_round(joined)

    def _deal_round(self, calls: Sequence[HandCall]) -> None:
        groups: dict[tuple[AskGroup, bool], list[HandCall]] = defaultdict(list)
        for call in calls:
            groups[_group_of(call), call.args["start"]].append(call)
        for (group, start), members in groups.items():
            finishes = [item for call in members for item in call.args["finishes"]]
            asks = [Ask(call.args["worker"], call.args["limit"]) for call in members]
            try:
                step = self._dealer(group).deal(finishes, asks, start=start)
            except Exception as error:  # noqa: BLE001  (every error is an answer)
                self._sort_out(group, start, members, error)
                continue
            self._answer(group, members, step)

    def _sort_out(self, group: AskGroup, start: bool, calls: Sequence[HandCall], error: Exception) -> None:
        """Answer with the error; if the store refused one of several batches, deal with each hand alone."""
        if len(calls) == 1 or is_trouble(error):
            for call in calls:
                call.fail(error)
            return
        for call in calls:
            ask = Ask(call.args["worker"], call.args["limit"])
            try:
                step = self._dealer(group).deal(call.args["finishes"], [ask], start=start)
            except Exception as refused:  # noqa: BLE001  (every error is an answer)
                call.fail(refused)
            else:
                self._answer(group, [call], step)

    def _answer(self, group: AskGroup, calls: Sequence[HandCall], step: StepResult) -> None:
        by_worker: dict[UUID | None, list[Claim]] = defaultdict(list)
        for claim in step.claims:
            by_worker[claim.worker].append(claim)
        now, filled = self._clock.monotonic(), True
        for call in calls:
            worker, claims = call.args["worker"], by_worker[call.args["worker"]]
            lost = step.lost & {item.claim.id for item in call.args["finishes"]}
            call.reply(StepResult(lost, claims))
            if len(claims) < call.args["limit"] and call.address is not None:
                filled = False
                self._hungry.add(group, worker, call.address, now)
            else:
                self._hungry.remove(group, worker)
        self._counts["deals"] += 1
        self._counts["asked"] += len(calls)
        self._counts["dealt"] += len(step.claims)
        self._counts["finished"] += sum(len(call.args["finishes"]) for call in calls)
        if filled and step.claims:  # there may be more
            self._wake(group, 2 * len(step.claims), step.claims[0].queue)

    def _dealer(self, group: AskGroup) -> Dealer:
        dealer = self._dealers.get(group)
        if dealer is None:
            dealer = self._dealers[group] = Dealer(self._store, self._clock, group)
            if len(self._dealers) > _MOST_GROUPS:
                self._dealers.popitem(last=False)
        else:
            self._dealers.move_to_end(group)
        return dealer

    # Wake-ups ------------------------------------------------------------------------------------------------------------

    def _heard(self, topics: frozenset[str]) -> None:
        """Note what the store announces, on the thread of the listener."""
        queues = [topic.removeprefix("ready:") for topic in topics if topic.startswith("ready:")]
        number = sum(call.wanted for call in read_calls(topics))
        with self._rung:
            for queue in queues:
                self._wanted[queue] += number or MOST_WOKEN
            self._changed = self._changed or "change" in topics
        relayed = topics & RELAYED
        if "change" in relayed:
            self._orders = None
        if relayed and not self._closed:
            data = notice_bytes(relayed)
            for wire in self._wires:
                wire.tell(None, data)
        if queues or "change" in topics:
            self._deals.wake()

    def _look(self) -> float | None:
        """Wake hands for announced jobs and for limits that have room again. Returns the seconds until the next look."""
        with self._rung:
            wanted, self._wanted = self._wanted, Counter()
            changed, self._changed = self._changed, False
        now = self._clock.monotonic()
        retry_at = float("inf")
        for group, dealer in list(self._dealers.items()):
            if changed:
                dealer.forget()
                self._wake(group, MOST_WOKEN, _queue_for(group, "default"))
            for queue, number in wanted.items():
                if group.queues is None or queue in group.queues:
                    dealer.rung = True
                    self._wake(group, max(FEWEST, number), queue)
            if self._hungry.any(group):
                if dealer.retry_at <= now:
                    dealer.rung = True
                    self._wake(group, MOST_RETRYING, _queue_for(group, "default"))
                else:
                    retry_at = min(retry_at, dealer.retry_at)
        return None if retry_at == float("inf") else max(retry_at - now, SHORTEST)

    def _wake(self, group: AskGroup, most: int, queue: str) -> None:
        addresses = self._hungry.take(group, most, self._clock.monotonic())
        if addresses:
            data = notice_bytes(frozenset({f"ready:{queue}"}))
            for address in addresses:
                wire = self._where.get(address)
                if wire is not None:
                    wire.tell(address, data)


MOST_WOKEN = 100
"""Hands that an announcement without a number wakes; they wake others as long as they find jobs."""

MOST_RETRYING = 8
"""Hands that are woken when a limit may have room again."""

SHORTEST = 0.01
"""Seconds between two looks for limits that have room again, at least."""


def _asked(args: dict[str, object]) -> dict[str, object]:
    """The arguments of an ask as values."""
    queues, tasks = args["queues"], args["tasks"]
    return {
        "finishes": _FINISHES(args["finishes"]),
        "worker": UUID(str(args["worker"])),
        "limit": max(0, min(int(str(args["limit"])), MOST_ASKED)),
        "tasks": _names(tasks),
        "start": bool(args["start"]),
        "queues": None if queues is None else _names(queues),
    }


MOST_ASKED = 10_000
"""Jobs that one ask gets at most."""


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError("expected a list of names")
    return tuple(value)


def _group_of(call: HandCall) -> AskGroup:
    tasks = tuple(task for task in call.args["tasks"] if call.caller.may_run(task))
    return AskGroup(call.caller.tenant, call.args["queues"], tasks)


def _queue_for(group: AskGroup, usual: str) -> str:
    return usual if group.queues is None else group.queues[0]
