"""The stages of a job, read from its log and from the stages that its task declares."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from tidemill.domain.job import Execution, LogEntry

AHEAD = "ahead"


class Stage(NamedTuple):
    """A named part of the work."""

    name: str
    number: int  #: of the execution
    took: timedelta | None  #: None until the stage has ended
    words: str


def stages(
    lines: Sequence[LogEntry], executions: Sequence[Execution], declared: Sequence[str] = ()
) -> list[Stage]:
    """The stages of the last execution in these lines, in the order they began; declared stages keep their declared order."""
    marks = [entry for entry in lines if entry.stage is not None]
    number = max((entry.number for entry in marks), default=0)
    ended = {execution.number for execution in executions if execution.finished_at is not None}
    waits = not number or number not in ended
    found = {name: Stage(name, number, None, AHEAD if waits else "not reached") for name in declared}
    for entry in (entry for entry in marks if entry.number == number):
        name = entry.stage or ""
        if entry.duration is not None and entry.message.startswith(f"stage {name} "):
            words = (
                "done" if entry.message.endswith(" ends") else entry.message.removeprefix(f"stage {name} ")
            )
            found[name] = Stage(name, number, entry.duration, words)
        elif name not in found or name in declared:
            found[name] = Stage(name, number, None, "not finished" if number in ended else "going on")
    return list(found.values())
