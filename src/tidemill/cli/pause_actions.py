"""Pause and resume of a queue, a task, a tenant or everything.

Running jobs continue; no new ones start.
"""

from __future__ import annotations

import shlex
from datetime import datetime

from tidemill.cli.context import CommandContext
from tidemill.cli.screen import age, print_json, print_lines
from tidemill.client.documents import pause_document
from tidemill.domain.bounds import check_name
from tidemill.domain.records import Pause, PauseKind

EVERYTHING = ("",)
"""The only name of the kind ``all``."""


def pause(context: CommandContext, kind: PauseKind, names: tuple[str, ...], reason: str | None) -> None:
    """Pause these. Existing pauses keep their reason."""
    for name in names if kind is not PauseKind.ALL else ():
        # Refuse an invalid name before anything is paused.
        check_name(kind, name)
    before = {pause.name for pause in context.control.pauses() if pause.kind is kind}
    standing = {name: context.control.pause(kind, name, reason=reason) for name in dict.fromkeys(names)}
    if context.as_json:
        print_json([pause_document(pause) for pause in standing.values()])
        return
    now = context.now()
    for name, pause in standing.items():
        if name in before:
            print_lines([(f"{what(pause)} is paused already ({pause_words(pause, now)})", "")])
        else:
            print_lines([(f"{what(pause)} is paused; running jobs continue", "")])


def resume(context: CommandContext, kind: PauseKind, names: tuple[str, ...]) -> None:
    """Resume these; ignore those that are not paused."""
    ended = [context.control.resume(kind, name) for name in dict.fromkeys(names)]
    stood = {pause.name: pause for pause in ended if pause is not None}
    if context.as_json:
        print_json([pause_document(pause) for pause in stood.values()])
        return
    for name in dict.fromkeys(names):
        done = "is resumed" if name in stood else "was not paused"
        print_lines([(f"{what(Pause(kind, name))} {done}", "")])


def what(pause: Pause) -> str:
    """Return what a pause applies to."""
    return "everything" if pause.kind is PauseKind.ALL else f"{pause.kind} {pause.name}"


def way_back(pause: Pause) -> str:
    """Return the command that ends a pause.

    >>> way_back(Pause(PauseKind.TENANT, "acme"))
    'tidemill tenants resume acme'
    """
    if pause.kind is PauseKind.ALL:
        return "tidemill queues resume --all"
    return f"tidemill {pause.kind}s resume {shlex.quote(pause.name)}"


def pause_words(pause: Pause | None, now: datetime) -> str | None:
    """Describe a pause in a few words; None without one."""
    if pause is None:
        return None
    by = f" by {pause.paused_by}" if pause.paused_by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"paused{by} {age(pause.paused_at, now)}{why}"
