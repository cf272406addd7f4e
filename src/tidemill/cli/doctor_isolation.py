"""Checks of ``tidemill doctor``: sandboxes and containers on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.engine.confinement.protection import advice, missing_protection, protections, refusal
from tidemill.tasks.confinement import Container, Sandbox
from tidemill.tasks.task import Declared


def look_at_isolation(tasks: Iterable[Declared]) -> Iterator[tuple[str, str, str]]:
    """The protections of confined tasks on this system, if the app declares any: status, check and text."""
    confined = [task for task in tasks if isinstance(task.options.confinement, Sandbox | Container)]
    kinds = {task.options.isolation_name for task in confined}
    for protection in protections() if kinds else ():
        if protection.name in kinds and protection.problem is None:
            yield "ok", "isolation", f"{protection.name}: {protection.note}"
    for task in confined:
        problem = missing_protection(task.options.confinement)
        if problem is None:
            continue
        kind = task.options.isolation_name
        if refusal(task.options.confinement) is None:
            text = f"task {task.name} would run here without its {kind}, as strict=False allows: {problem}"
            yield "warn", "isolation", text
        else:
            to_change = advice(task.options.confinement)
            text = f"task {task.name} needs a {kind}, and a worker here would not claim it: {problem}; {to_change}"
            yield "fail", "isolation", text
