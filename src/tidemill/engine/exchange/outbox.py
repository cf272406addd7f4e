"""Outcomes that are waiting to be written to the store.

``reached`` may be changed from any thread. All other changes require the lock of the exchange. The outbox itself writes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from uuid import UUID

from tidemill.engine.exchange.finisher import Settled, settle
from tidemill.engine.exchange.held_job import DECIDED, OPEN, SUPERSEDED, HeldJob
from tidemill.engine.exchange.planner import ExecutorLoad
from tidemill.engine.runner.execution import ExecutionEnd


class Outbox:
    """Queue of outcomes to write, oldest first."""

    def __init__(self, kinds: dict[str, ExecutorLoad]) -> None:
        self._kinds = kinds
        self.reached: deque[tuple[HeldJob, ExecutionEnd | None]] = (
            deque()
        )  #: finished handlers; any thread may append
        self._decided: deque[Settled] = deque()

    def __bool__(self) -> bool:
        return bool(self.reached or self._decided)

    def decide(self, settled: Sequence[Settled]) -> None:
        """Queue these outcomes, except for jobs whose handler already has one."""
        for item in settled:
            if item.held.phase is OPEN:
                item.held.phase = DECIDED
                self._decided.append(item)

    def keep(self, settled: Sequence[Settled]) -> None:
        """Put outcomes that could not be written back to the front."""
        self._decided.extendleft(reversed(settled))

    def take(self, most: int, at: float) -> list[Settled]:
        """Remove at most ``most`` outcomes for one statement, and free the slots of their jobs."""
        taken = self.take_decided(most)
        ids = {item.claim.id.int for item in taken}  # integers: looking up a UUID takes five times as long
        while self.reached and len(taken) < most:
            # Other threads only append, so at least this many can be removed.
            room = min(most - len(taken), len(self.reached))
            lot = [self.reached.popleft() for _ in range(room)]
            self._free(lot)
            for held, ended in lot:
                if held.phase is not OPEN:
                    continue
                held.phase = DECIDED
                id = held.claim.id.int
                if id in ids:
                    self._decided.append(settle(held, ended, at))
                else:
                    ids.add(id)
                    taken.append(settle(held, ended, at))
        return taken

    def _free(self, lot: Sequence[tuple[HeldJob, ExecutionEnd | None]]) -> None:
        """Free the slots of these jobs, and note how long they ran."""
        kinds = [held.kind for held, _ in lot]
        for kind in set(kinds):
            load, jobs = self._kinds[kind], kinds.count(kind)
            load.load -= jobs
            same = lot if jobs == len(lot) else [item for item in lot if item[0].kind == kind]
            load.ran(sum([ended.ended - ended.began for _, ended in same if ended is not None]), jobs)

    def take_decided(self, most: int) -> list[Settled]:
        """Remove the oldest decided outcomes.

        A job that was lost and claimed again may have two outcomes here. Only the first is returned.
        """
        if not self._decided:
            return []
        taken: dict[UUID, Settled] = {}
        second: list[Settled] = []
        while self._decided and len(taken) < most:
            item = self._decided.popleft()
            if item.held.phase is SUPERSEDED:
                continue
            if taken.setdefault(item.claim.id, item) is not item:
                second.append(item)
        self._decided.extendleft(reversed(second))
        return list(taken.values())
