"""Helpers for the process executor tests: an executor, and single jobs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.engine.kit import Notes, a_claim

from tidemill.clock import SystemClock
from tidemill.domain.job import NO_DETAILS, Details
from tidemill.engine.context import Outlet
from tidemill.engine.executors.processes import ProcessExecutor
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.ids import new_id
from tidemill.tasks.confinement import Confinement

APP = "tests.engine.isolated_app:app"
LONG = 60.0
CLOCK = SystemClock()


class Pending:
    """A submitted job."""

    def __init__(self, id: UUID) -> None:
        self.id = id
        self.ends: list[ExecutionEnd] = []
        self.at = 0.0  #: when its end was reported
        self._over = threading.Event()

    def told(self, ended: ExecutionEnd) -> None:
        self.ends.append(ended)
        self.at = CLOCK.monotonic()
        self._over.set()

    def end(self) -> ExecutionEnd:
        assert self._over.wait(LONG), "the job does not end"
        assert len(self.ends) == 1
        return self.ends[0]


class Lane(ProcessExecutor):
    """A process executor with short methods to run jobs."""

    def begin(
        self,
        task: str,
        *,
        outlet: Outlet | None = None,
        timeout: float | None = None,
        details: Details = NO_DETAILS,
        confinement: Confinement | None = None,
        id: UUID | None = None,
        **args: Any,
    ) -> Pending:
        pending = Pending(id or new_id())
        span = None if timeout is None else timedelta(seconds=timeout)
        claim = a_claim(json.dumps(args))._replace(task=task, id=pending.id, timeout=span, token=7)
        self.submit(claim, details, outlet or Notes(), span, pending.told, confinement=confinement)
        return pending

    def run(self, task: str, **given: Any) -> ExecutionEnd:
        return self.begin(task, **given).end()

    def result(self, task: str, **given: Any) -> Any:
        """The return value of the task."""
        ended = self.run(task, **given)
        assert ended.result is not None, ended
        return json.loads(ended.result)


@contextmanager
def open_lane(slots: int = 1, app: str = APP, **settings: Any) -> Iterator[Lane]:
    lane = Lane(app, slots, CLOCK, **settings)
    try:
        yield lane
    finally:
        lane.close()


def until(true: Callable[[], object], seconds: float = LONG) -> None:
    """Wait until a condition holds."""
    deadline = CLOCK.monotonic() + seconds
    while not true():
        assert CLOCK.monotonic() < deadline, "it does not come true"
        threading.Event().wait(0.01)


def marked(sign: Path) -> int:
    """The pid that a process has written into this file."""
    until(lambda: sign.exists() and sign.read_text())
    return int(sign.read_text())


def is_alive(pid: int) -> bool:
    """Whether a process runs. A zombie does not count as running."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}
    except OSError:
        return False
