"""Pause and resume of a queue, a task, a tenant or everything.

Running jobs continue; no new ones start.
"""

from __future__ import annotations

import shlex
from datetime import datetime

from tidemill.cli.context import CommandContext
from tidemill.cli.screen import age, print_json, print_lines
from tidemill.client.documents import pause_document
from tidemill.domain.records import Pause, PauseKind
from tidemill.tasks.options import check_name

EVERYTHING = ("",)
"""The only name of the kind ``all``."""


def pause(desk: CommandContext, kind: PauseKind, names: tuple[str, ...], reason: str | None) -> None:
    """Pause these. Existing pauses keep their reason."""
    for name in names if kind is not PauseKind.ALL else ():
        # Refuse an invalid name before anything is paused.
        check_name(kind, name)
    before = {found.name for found in desk.control.pauses() if found.kind is kind}
    standing = {name: desk.control.pause(kind, name, reason=reason) for name in dict.fromkeys(names)}
    if desk.as_json:
        print_json([pause_document(found) for found in standing.values()])
        return
    now = desk.now()
    for name, found in standing.items():
        if name in before:
            print_lines([(f"{what(found)} is paused already ({said(found, now)})", "")])
        else:
            print_lines([(f"{what(found)} is paused; running jobs continue", "")])


def resume(desk: CommandContext, kind: PauseKind, names: tuple[str, ...]) -> None:
    """Resume these; ignore those that are not paused."""
    ended = [desk.control.resume(kind, name) for name in dict.fromkeys(names)]
    stood = {found.name: found for found in ended if found is not None}
    if desk.as_json:
        print_json([pause_document(found) for found in stood.values()])
        return
    for name in dict.fromkeys(names):
        done = "is resumed" if name in stood else "was not paused"
        print_lines([(f"{what(Pause(kind, name))} {done}", "")])


def what(found: Pause) -> str:
    """Return what a pause applies to."""
    return "everything" if found.kind is PauseKind.ALL else f"{found.kind} {found.name}"


def way_back(found: Pause) -> str:
    """Return the command that ends a pause.

    >>> way_back(Pause(PauseKind.TENANT, "acme"))
    'tidemill tenants resume acme'
    """
    if found.kind is PauseKind.ALL:
        return "tidemill queues resume --all"
    return f"tidemill {found.kind}s resume {shlex.quote(found.name)}"


def said(found: Pause | None, now: datetime) -> str | None:
    """Describe a pause in a few words; None without one."""
    if found is None:
        return None
    by = f" by {found.paused_by}" if found.paused_by else ""
    why = f": {found.reason}" if found.reason else ""
    return f"paused{by} {age(found.paused_at, now)}{why}"
