"""Points at which a tested worker dies: after a step's effect, after its record, or before the job's finish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from tidemill.domain.steps import step_name
from tidemill.errors import UsageError

IN_STEP, AFTER_STEP, FINISH = "in-step", "after-step", "finish"


class WorkerKilled(BaseException):
    """Raised in the job at the point where its worker dies. Nothing that the job does later is written."""


class KillPoints:
    """The points that are armed. Each kills once; with ``everywhere``, every point of every job does."""

    def __init__(self, points: Iterable[str] = (), *, everywhere: bool = False) -> None:
        self._armed = [_checked(point) for point in points]
        self.everywhere = everywhere
        self._passed: set[tuple[UUID, str]] = set()
        self.kills: list[str] = []  #: the points at which a worker was killed, in order

    def arm(self, point: str) -> None:
        """Kill the worker when this point is reached next."""
        self._armed.append(_checked(point))

    def reach(self, job: UUID, point: str) -> None:
        """Die here if the point is armed."""
        if self.everywhere and (job, point) not in self._passed:
            self._passed.add((job, point))
        elif point in self._armed:
            self._armed.remove(point)
        else:
            return
        self.kills.append(point)
        raise WorkerKilled(f"the worker was killed at {point}")

    def reach_steps(self, job: UUID, kind: str, records: Mapping[str, str]) -> None:
        """Die at one of these steps if it is armed."""
        for name in records:
            if not name.startswith("@"):
                self.reach(job, f"{kind}:{name}")


def _checked(point: str) -> str:
    kind, _, name = point.partition(":")
    if point == FINISH:
        return point
    if kind not in (IN_STEP, AFTER_STEP) or not name:
        raise UsageError(
            f"{point!r} is not a point; give {AFTER_STEP}:NAME, {IN_STEP}:NAME (after its effect and before its record)"
            f" or {FINISH}"
        )
    step_name(name.partition("#")[0])
    return point
