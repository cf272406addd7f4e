"""The stages of a job, read from its log and from the stages that its task declares."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from tidemill.domain.job import Execution, LogEntry

AHEAD, DONE = "ahead", "done"


class Stage(NamedTuple):
    """A named part of the work."""

    name: str
    number: int  #: of the execution
    took: timedelta | None  #: None until the stage has ended
    words: str  #: ahead, running, done, not reached, not finished, or how it failed
    began_at: datetime | None = None
    ended_at: datetime | None = None


def stages(
    lines: Sequence[LogEntry],
    executions: Sequence[Execution],
    declared: Sequence[str] = (),
    recorded: Collection[str] = (),
) -> list[Stage]:
    """The stages of the last execution in these lines, in the order they began; declared stages keep their declared order.

    A stage whose result is ``recorded`` is not repeated, so an earlier execution may have done it.
    """
    marks = [entry for entry in lines if entry.stage is not None]
    number = max((entry.number for entry in marks), default=0)
    ended = {execution.number for execution in executions if execution.finished_at is not None}
    waits = not number or number not in ended
    found = {name: Stage(name, number, None, AHEAD if waits else "not reached") for name in declared}
    for entry in marks:
        name = entry.stage or ""
        if entry.number == number:
            found[name] = _marked(entry, found.get(name), is_over=number in ended)
        elif name in recorded and name in declared:
            found[name] = _marked(entry, found.get(name), is_over=True)
    for name in recorded:
        if name in found and found[name].words != DONE and found[name].began_at is None:
            found[name] = found[name]._replace(words=DONE)
    return list(found.values())


def _marked(entry: LogEntry, before: Stage | None, *, is_over: bool) -> Stage:
    """The stage after one of its lines: its beginning, its end, or a line in between."""
    name = entry.stage or ""
    if entry.duration is not None and entry.message.startswith(f"stage {name} "):
        words = DONE if entry.message.endswith(" ends") else entry.message.removeprefix(f"stage {name} ")
        return Stage(name, entry.number, entry.duration, words, entry.at - entry.duration, entry.at)
    if (
        before is not None
        and before.took is not None
        and before.number == entry.number
        and not _begins(entry)
    ):
        return before
    began_at = before.began_at if before is not None and before.number == entry.number else None
    words = "not finished" if is_over else "running"
    return Stage(name, entry.number, None, words, entry.at if _begins(entry) else began_at)


def _begins(entry: LogEntry) -> bool:
    return entry.message == f"stage {entry.stage} begins"
