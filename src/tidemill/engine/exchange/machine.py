"""State machine of the exchange between a worker and its store. It has no threads, no clock and no I/O.

::

                start             a step begins
    ┌──────────┐ ───▶ ┌─────────┐ ────────────▶ ┌──────────┐ ─┐ another step begins: on a second
    │ DRAINING │      │ POLLING │               │ STEPPING │  │ thread, or pipelined on the loop
    └──────────┘      └─────────┘ ◀──────────── └──────────┘ ◀┘
                        ▲      the last step ends;   │
             ring, or a │      a wake-up is pending  │ the last step ends;
             poll is due│                            │ no wake-up is pending
                      ┌──────┐                       │
                      │ IDLE │ ◀─────────────────────┘
                      └──────┘

    any state ── pause ─────────▶ DRAINING ── resume ──▶ POLLING
    any state ── store failed ──▶ RECOVERING ── recovered ──▶ POLLING, STEPPING or, after a pause, DRAINING
    any state ── close ─────────▶ CLOSED

A worker in ``DRAINING`` still writes results, and claims nothing. In ``RECOVERING`` one thread uses the store alone; no
other step begins. Every event is a method. The drivers call it under the lock of the exchange, and its return value is
what the driver has to do. ``SharedState`` has the lock, ``threads`` and ``loop`` are the drivers.

The event loop's thread is a second, smaller machine inside this one::

    AWAY ── ring while nothing runs ──▶ ASKED ── its turn ──▶ TRYING ── the claimed jobs have begun ──▶ AWAY
    AWAY ── its turn under load ──▶ DRIVING ── its turn without load ──▶ AWAY
    any  ── no turn for RESERVE seconds ──▶ AWAY
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from tidemill.engine.exchange.planner import ClaimPlan, Planner
from tidemill.engine.executors.kinds import LOOP

RESERVE = 0.1
"""Seconds without a turn of the event loop after which the threads take over its work."""

FLIGHTS = 2
"""Maximum number of pipelined steps: one that the store works on, and one that is queued behind it."""

LONGEST_PAUSE = 2.0
"""Longest pause, in seconds, between two attempts to reach the store or to find something to claim."""


class ExchangeState(Enum):
    """The state of the exchange as a whole."""

    IDLE = "idle"
    POLLING = "polling"
    STEPPING = "stepping"
    RECOVERING = "recovering"
    DRAINING = "draining"
    CLOSED = "closed"


class LoopRole(Enum):
    """The part of the event loop's thread in the exchange."""

    AWAY = "away"
    """It only runs jobs."""

    ASKED = "asked"
    """It was asked to claim a job, because nothing runs and a wake-up has arrived."""

    TRYING = "trying"
    """It claims in the lanes that recently had work, or its claimed jobs have not begun yet."""

    DRIVING = "driving"
    """It writes results and claims jobs for itself, because the load is high."""


class Wakeup(Enum):
    """Whether the store may have work that no claim has looked for."""

    NONE = "none"
    PENDING = "pending"
    TRIED = "tried"
    """The event loop's thread has tried the lanes that recently had work. The other lanes are still to be read."""


class LaneLook(Enum):
    """How a claim finds its lanes."""

    KNOWN = "known"
    """Use the known lanes, which are read again only if they are stale."""

    TRY = "try"
    """Try the lanes that recently had work. The wake-up stays pending."""

    TRY_THEN_READ = "try then read"
    """Try the lanes that recently had work, which takes one round trip. Then read the lanes and claim the rest."""

    READ = "read"
    """Read the lanes first."""

    FOLLOW = "follow"
    """Use the known lanes and those that recently had work: the results of the step release jobs there."""

    WRITE_THEN_READ = "write then read"
    """Write the results, then read the lanes: clients that wait for these results must not wait for the reading."""


class ClaimScope(Enum):
    """The jobs that a thread may claim."""

    NOTHING = "nothing"
    ALL = "all"
    LOOP_ONLY = "loop only"
    WITHOUT_LOOP = "without loop"


class Share(NamedTuple):
    """The work that a thread may take now."""

    results: bool
    claims: ClaimScope


class LoopTurn(NamedTuple):
    """The work that the event loop's thread may take now. ``hurry``: steps in flight are to be received at once."""

    share: Share
    asked: bool
    hurry: bool


NO_SHARE = Share(False, ClaimScope.NOTHING)


class ExchangeMachine:
    """Decides which thread may write results, claim jobs or recover."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._claiming = self._closed = self._recovering = False
        self._store_ok = True
        self._steps = 0
        self._wakeup = Wakeup.PENDING
        self._role = LoopRole.AWAY
        self._drove_at = float("-inf")
        self._follows = False  # the next claim follows results that may release jobs
        self._on_loop = False  # the loop's thread is between ``loop_begins`` and ``loop_ends``
        self._flights = 0

    # State ---------------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ExchangeState:
        """The state in the diagram above."""
        if self._closed:
            return ExchangeState.CLOSED
        if self._recovering:
            return ExchangeState.RECOVERING
        if not self._claiming:
            return ExchangeState.DRAINING
        if self._steps:
            return ExchangeState.STEPPING
        return ExchangeState.IDLE if self._wakeup is Wakeup.NONE else ExchangeState.POLLING

    @property
    def claiming(self) -> bool:
        """Whether new jobs are claimed."""
        return self._claiming

    @property
    def closed(self) -> bool:
        """Whether the exchange has ended."""
        return self._closed

    @property
    def recovering(self) -> bool:
        """Whether one thread recovers. No step may begin in that time."""
        return self._recovering

    @property
    def store_ok(self) -> bool:
        """Whether the last exchange with the store succeeded."""
        return self._store_ok

    @property
    def steps(self) -> int:
        """The number of steps under way."""
        return self._steps

    @property
    def flights(self) -> int:
        """The number of pipelined steps under way, which are part of ``steps``."""
        return self._flights

    @property
    def role(self) -> LoopRole:
        """The role of the event loop's thread."""
        return self._role

    @property
    def wakeup(self) -> Wakeup:
        """Whether the store may have work that no claim has looked for."""
        return self._wakeup

    @property
    def wants_claim(self) -> bool:
        """Whether a wake-up is pending and a claim is possible."""
        return self._claiming and self._wakeup is not Wakeup.NONE and self._planner.plan() is not None

    @property
    def may_claim_more(self) -> bool:
        """Whether a claim is possible, or a wake-up is pending that may make it so."""
        return self._wakeup is not Wakeup.NONE or (self._claiming and self._planner.plan() is not None)

    # Life cycle ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to claim."""
        self._claiming = True

    def pause(self) -> None:
        """Claim nothing more; results are still written."""
        self._claiming = False

    def resume(self) -> None:
        """Claim again after a pause, and look for jobs that arrived in the meantime."""
        self._claiming = not self._closed
        self._wake()

    def close(self) -> None:
        """End the exchange. Unwritten results are recovered when the worker's lease expires."""
        self._claiming, self._closed = False, True

    # Wake-ups ------------------------------------------------------------------------------------------------------------

    def ring(self, now: float, *, loop_idle: bool) -> bool:
        """There may be something to claim. Returns whether to interrupt the event loop, so that its thread claims.

        ``loop_idle``: the loop has nothing to run, and its thread can claim in lanes that it knows.
        """
        self._wake()
        asks = loop_idle and not self._steps and self._role is not LoopRole.ASKED and self._loop_is_able
        if asks:
            self._role, self._drove_at = LoopRole.ASKED, now
        return asks

    def idle(self, poll_in: float) -> float | None:
        """A thread found no work. Returns the seconds for which it waits; None: until it is notified.

        A poll that is due counts as a wake-up.
        """
        if self._role is not LoopRole.AWAY:
            return RESERVE
        if not self._claiming or self._recovering:
            return None
        if poll_in > 0:
            return poll_in
        self._wake()
        return 0.0 if self._planner.plan() is not None else LONGEST_PAUSE

    def _wake(self) -> None:
        if self._wakeup is Wakeup.NONE:
            self._wakeup = Wakeup.PENDING
        self._planner.wet()

    # Steps ---------------------------------------------------------------------------------------------------------------

    def thread_turn(self, now: float) -> Share:
        """One of the exchange's own threads looks for work.

        While the loop's thread drives, these threads claim only jobs that do not run on the loop, because the loop's
        own claims wait until it turns again. They write only results that the loop's thread has left for too long.
        """
        if self._closed or self._recovering:
            return NO_SHARE
        stale = self._role is LoopRole.AWAY or now - self._drove_at >= RESERVE
        if stale and not self._on_loop:
            self._role = LoopRole.AWAY
        if self._role is LoopRole.AWAY:
            return Share(True, ClaimScope.ALL)
        if self._role is LoopRole.DRIVING:
            return Share(stale, ClaimScope.WITHOUT_LOOP)
        return Share(True, ClaimScope.NOTHING)

    def plan(self, scope: ClaimScope, *, writes: bool = False) -> ClaimPlan | None:
        """Plan the claim of a step, and count its jobs as requested. ``claim_ended`` must follow.

        ``writes``: the step also writes results. If jobs of flows run here, these may release jobs, which the same step claims.
        """
        if not self._claiming or scope is ClaimScope.NOTHING:
            return None
        if writes and self._planner.linked:
            self._planner.wet()
            self._follows = True
        plan = self._planner.plan(
            only=LOOP if scope is ClaimScope.LOOP_ONLY else None,
            without=LOOP if scope is ClaimScope.WITHOUT_LOOP else None,
        )
        if plan is not None:
            self._planner.begin(plan)
        return plan

    def step_begins(self) -> None:
        """A thread has taken work. ``step_ended`` must follow."""
        self._steps += 1

    def claim_begins(self, *, must_look: bool) -> LaneLook:
        """A step is about to claim. ``must_look``: pauses or limits have changed and must be read first."""
        if self._role is LoopRole.TRYING and not must_look:
            return LaneLook.TRY
        follows, self._follows = self._follows, False
        wakeup, self._wakeup = self._wakeup, Wakeup.NONE
        if wakeup is Wakeup.NONE:
            return LaneLook.FOLLOW if follows else LaneLook.KNOWN
        if wakeup is Wakeup.TRIED and not follows:
            return LaneLook.WRITE_THEN_READ
        return LaneLook.READ if must_look else LaneLook.TRY_THEN_READ

    def tried(self) -> None:
        """A claim with ``LaneLook.TRY`` has succeeded."""
        self._wakeup = Wakeup.TRIED

    def claim_ended(self, plan: ClaimPlan, claimed: int | None) -> None:
        """A claim has returned this many jobs; None if it failed.

        After a failure, or if a wake-up arrived in between, the announced jobs are still unclaimed.
        """
        self._planner.end(plan, claimed)
        if claimed is None or self._wakeup is not Wakeup.NONE:
            self._wake()

    def slots_returned(self) -> None:
        """Finished jobs have returned limit slots, so there may be something to claim."""
        self._planner.wet()

    def step_ended(self) -> None:
        """A step has ended, however it ended."""
        self._steps -= 1

    # The event loop's thread ---------------------------------------------------------------------------------------------

    @property
    def _loop_is_able(self) -> bool:
        return self._claiming and self._store_ok

    def loop_wants(self) -> bool:
        """Whether the loop's thread should drive: the last claim returned a full batch, or jobs of flows run, whose ends
        release other jobs; and nothing runs elsewhere.
        """
        planner = self._planner
        return (
            (planner.hot or bool(planner.linked))
            and self._claiming
            and self._store_ok
            and not any(kind.load for kind in planner.kinds.values() if kind.name != LOOP)
        )

    def loop_turn(self, now: float, *, wanted: bool) -> LoopTurn:
        """The loop's thread has a turn, and looks for work. ``wanted``: the load is high (``loop_wants``)."""
        asked = self._role is LoopRole.ASKED and self._loop_is_able
        able = (asked or wanted) and not self._recovering and not self._closed
        if not able or self._flights >= FLIGHTS:
            return LoopTurn(NO_SHARE, asked=False, hurry=not able)
        self._role, self._drove_at = (LoopRole.TRYING if asked else LoopRole.DRIVING), now
        share = Share(False, ClaimScope.ALL) if asked else Share(True, ClaimScope.LOOP_ONLY)
        return LoopTurn(share, asked, hurry=False)

    def loop_begins(self, *, took: bool) -> None:
        """The loop's thread has taken work, or handles the answer to a pipelined step. ``loop_ends`` must follow."""
        self._steps += took
        self._on_loop = True

    def loop_yields(self, turn: LoopTurn) -> bool:
        """The loop's thread has found nothing to do in this turn. Returns whether the threads are to be woken."""
        if self._role is LoopRole.AWAY:
            return False
        if turn.asked or (turn.hurry and self._role is not LoopRole.TRYING):
            self._role = LoopRole.AWAY
            return True
        return False

    def flight_begins(self) -> None:
        """The step that the loop's thread has taken was sent ahead of the answer to the previous one."""
        self._flights += 1

    def flight_ended(self) -> None:
        """The answer to the oldest pipelined step has arrived, or is lost."""
        self._flights -= 1

    def loop_ends(self) -> None:
        """The loop's thread returns to its jobs."""
        self._on_loop = False

    def loop_rests(self) -> None:
        """The jobs that the loop's thread has claimed on request have begun. The threads read the other lanes."""
        if self._role is not LoopRole.ASKED and not self._on_loop:
            self._role = LoopRole.AWAY

    # Recovery ------------------------------------------------------------------------------------------------------------

    def store_failed(self) -> bool:
        """The store did not answer. Returns whether that is new."""
        new, self._store_ok = self._store_ok, False
        return new

    def store_answered(self) -> bool:
        """The store has answered. Returns whether that is new."""
        new, self._store_ok = not self._store_ok, True
        return new

    def recovery_begins(self) -> bool:
        """A thread with a step under way asks to recover. Returns False if another one recovers already.

        It may use the store once ``alone`` is true. ``recovery_ended`` must follow.
        """
        if self._recovering:
            return False
        self._recovering = True
        return True

    @property
    def alone(self) -> bool:
        """Whether the recovering thread's own step is the only one."""
        return self._steps <= 1

    def recovery_ended(self) -> None:
        """The recovery is complete, or the exchange is closed."""
        self._recovering = False
        self._wake()
