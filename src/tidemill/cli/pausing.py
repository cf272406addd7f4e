"""Pausing and resuming a queue or a task: what runs goes on, nothing more of it starts."""

from __future__ import annotations

from datetime import datetime

from tidemill.cli.desk import Desk, operator
from tidemill.cli.documents import pause_document
from tidemill.cli.screen import age, print_json, print_lines
from tidemill.domain.ledger import Pause, PauseKind
from tidemill.tasks.options import check_name


def pause(desk: Desk, kind: PauseKind, names: tuple[str, ...], reason: str | None) -> None:
    """Pause these; what is paused already stays so, with its first reason."""
    for name in names:
        check_name(kind, name)
    new = desk.store.pause([Pause(kind, name, reason, operator()) for name in dict.fromkeys(names)])
    desk.tell(["change"])
    standing = {found.name: found for found in desk.store.pauses() if found.kind is kind}
    if desk.as_json:
        print_json([pause_document(standing[name]) for name in names if name in standing])
        return
    fresh = {found.name for found in new}
    now = desk.now()
    for name in names:
        if name in fresh:
            print_lines([(f"{kind} {name} is paused; what runs goes on", "")])
        elif name in standing:
            print_lines([(f"{kind} {name} is paused already ({said(standing[name], now)})", "")])


def resume(desk: Desk, kind: PauseKind, names: tuple[str, ...]) -> None:
    """End these pauses; what is not paused stays so."""
    ended = desk.store.resume({(kind, name) for name in names})
    desk.tell(["change"])
    if desk.as_json:
        print_json([pause_document(found) for found in ended])
        return
    stood = {found.name for found in ended}
    for name in names:
        print_lines([(f"{kind} {name} {'is resumed' if name in stood else 'was not paused'}", "")])


def said(found: Pause | None, now: datetime) -> str | None:
    """A pause in a few words; None where there is none."""
    if found is None:
        return None
    by = f" by {found.paused_by}" if found.paused_by else ""
    why = f": {found.reason}" if found.reason else ""
    return f"paused{by} {age(found.paused_at, now)}{why}"
