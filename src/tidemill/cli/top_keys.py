"""Keys of ``tidemill top``: the keyboard, and the state that keys change."""

from __future__ import annotations

import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from tidemill.domain.states import ENDED, HELD, JobState

CTRL_C = "\x03"
UP, DOWN, ESCAPE = "up", "down", "escape"
_ARROWS = {"A": UP, "B": DOWN}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*([@-~])|O(.))")
"""Escape sequences that a terminal sends for special keys."""

RETRIED = ENDED - {JobState.COMPLETED}
"""Statuses of jobs that can be retried."""

CHOOSE_QUEUE = "select a queue with ↑ ↓ first"
CHOOSE_RUNNING = "select a job that has not ended first"
CHOOSE_FAILED = "select a failed job first; f lists them"


class View(StrEnum):
    """The jobs that are listed."""

    RUNNING = "running"
    FAILED = "failed"


class Row(NamedTuple):
    """A row that can be selected: a queue, or a job with its status."""

    key: str  #: name of the queue, or id of the job
    name: str  #: name of the queue, or task of the job
    state: JobState | None = None  #: None for a queue
    paused: bool = False


class TopAction(NamedTuple):
    """An action on a row: pause, resume, cancel or retry."""

    verb: str
    row: Row


@dataclass(frozen=True, slots=True)
class TopState:
    """State besides the data: the listed jobs, the selected row, a question and the last message."""

    view: View = View.RUNNING
    key: str | None = None
    question: TopAction | None = None
    note: str = ""


def keys_of(typed: str) -> list[str]:
    """Return the keys in what a terminal sent.

    >>> keys_of("j\\x1b[A"), keys_of("\\x1b"), keys_of("\\x1b[3~q"), keys_of("")
    (['j', 'up'], ['escape'], ['q'], [])
    """
    keys: list[str] = []
    at = 0
    while at < len(typed):
        sequence = _SEQUENCE.match(typed, at)
        if sequence is None:
            keys.append(ESCAPE if typed[at] == "\x1b" else typed[at])
            at += 1
            continue
        arrow = _ARROWS.get(sequence[1] or sequence[2])
        keys += [arrow] if arrow else []
        at = sequence.end()
    return keys


def quits(selection: TopState, key: str) -> bool:
    """Whether this key ends the program. Escape first answers a question."""
    return key in ("q", "Q", CTRL_C) or (key == ESCAPE and selection.question is None)


def press(selection: TopState, key: str, rows: Sequence[Row]) -> tuple[TopState, TopAction | None]:
    """Return the selection after a key, and the action to perform."""
    if selection.question is not None:
        act = selection.question if key in ("y", "Y") else None
        return replace(selection, question=None, note="" if act else "nothing was changed"), act
    selection = replace(selection, note="")
    row = next((row for row in rows if row.key == selection.key), None)
    match key:
        case "up" | "k":
            return _moved(selection, rows, -1), None
        case "down" | "j":
            return _moved(selection, rows, 1), None
        case "f":
            view = View.RUNNING if selection.view is View.FAILED else View.FAILED
            return replace(selection, view=view, key=None), None
        case "p":
            if row is None or row.state is not None:
                return replace(selection, note=CHOOSE_QUEUE), None
            return selection, TopAction("resume" if row.paused else "pause", row)
        case "c":
            if row is None or row.state is None or row.state in ENDED:
                return replace(selection, note=CHOOSE_RUNNING), None
            return replace(selection, question=TopAction("cancel", row)), None
        case "r":
            if row is None or row.state not in RETRIED:
                return replace(selection, note=CHOOSE_FAILED), None
            return selection, TopAction("retry", row)
        case _:
            return selection, None


def _moved(selection: TopState, rows: Sequence[Row], step: int) -> TopState:
    if not rows:
        return selection
    at = next((number for number, row in enumerate(rows) if row.key == selection.key), None)
    if at is None:
        at = 0 if step > 0 else len(rows) - 1
    else:
        at = min(max(at + step, 0), len(rows) - 1)
    return replace(selection, key=rows[at].key)


def question_words(act: TopAction) -> str:
    """Return the question that an action asks first."""
    asked = "ask it to stop" if act.row.state in HELD else "cancel it"
    return f"{act.row.name} {act.row.key[-12:]}: {asked}? y or n"


@contextmanager
def keyboard() -> Iterator[Callable[[float], str]]:
    """Yield a function that waits for keys for some seconds. Without a keyboard it only waits."""
    if not sys.stdin.isatty():
        yield _no_key
        return
    try:
        import termios
        import tty
    except ImportError:
        yield _no_key
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        if not ready:
            return ""
        # Read all pending input directly, because ``select`` does not report bytes in Python's own buffer.
        return os.read(number, 64).decode(errors="replace") or CTRL_C  # end of input: treat it as Ctrl-C

    try:
        yield pressed
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _no_key(seconds: float) -> str:
    threading.Event().wait(seconds)
    return ""
