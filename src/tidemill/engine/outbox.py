"""Ends on their way to the store: those that handlers have just reached, and those that are decided and not yet written.

Whoever changes more than ``reached`` holds the pump's lock. It writes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from uuid import UUID

from tidemill.engine.execute import Ended
from tidemill.engine.finisher import Settled, settle
from tidemill.engine.held import Held
from tidemill.engine.plan import Kind


class Outbox:
    """What is to be written, the oldest first."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self._kinds = kinds
        self.reached: deque[tuple[Held, Ended | None]] = deque()  #: anybody may append
        self._decided: deque[Settled] = deque()

    def __bool__(self) -> bool:
        return bool(self.reached or self._decided)

    def decide(self, settled: Sequence[Settled]) -> None:
        """These ends are to be written, but where a handler's own came first."""
        for item in settled:
            if not item.held.settled:
                item.held.settled = True
                self._decided.append(item)

    def keep(self, settled: Sequence[Settled]) -> None:
        """These could not be written yet; they come first again."""
        self._decided.extendleft(reversed(settled))

    def take(self, most: int, at: float) -> list[Settled]:
        """Ends to write, as many as one statement takes; their slots are free from now on."""
        taken = self.take_decided(most)
        ids = {item.claim.id.int for item in taken}  # numbers: a UUID takes five times as long to look up
        reached = self.reached
        seconds = dict.fromkeys(self._kinds, 0.0)
        count = dict.fromkeys(self._kinds, 0)
        while reached and len(taken) < most:
            held, ended = reached.popleft()
            kind = held.kind
            count[kind] += 1
            if ended is not None:
                seconds[kind] += ended.ended - ended.began
            if not held.settled:
                held.settled = True
                id = held.claim.id.int
                (self._decided if id in ids else taken).append(settle(held, ended, at))
                ids.add(id)
        for name, ended_now in count.items():
            self._kinds[name].load -= ended_now
            self._kinds[name].ran(seconds[name], ended_now)
        return taken

    def take_decided(self, most: int) -> list[Settled]:
        """The oldest; of two ends of one job, which it may have when it was lost and came back, only the first."""
        if not self._decided:
            return []
        taken: dict[UUID, Settled] = {}
        second: list[Settled] = []
        while self._decided and len(taken) < most:
            item = self._decided.popleft()
            if taken.setdefault(item.claim.id, item) is not item:
                second.append(item)
        self._decided.extendleft(reversed(second))
        return list(taken.values())
