"""The kind of slot that a task's jobs run in: event loop, thread or process."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from tidemill.engine.exchange.planner import ExecutorLoad
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

LOOP, THREAD, PROCESS = "loop", "thread", "process"


def kind_of(declared: Declared) -> str:
    """The kind of slot for a task's jobs."""
    match declared.options.isolation:
        case "process":
            return PROCESS
        case "thread":
            return THREAD
    return LOOP if declared.is_async else THREAD


def kinds_of(
    tasks: Iterable[Declared], settings: WorkerSettings, *, processes: bool
) -> dict[str, ExecutorLoad]:
    """The kinds of slots with their numbers and tasks. Without processes, tasks that need one are not claimed here."""
    named: dict[str, list[str]] = {LOOP: [], THREAD: [], PROCESS: []}
    aliases: dict[str, str] = {}
    for declared in tasks:
        named[kind_of(declared)] += [declared.name, *declared.options.aliases]
        aliases |= dict.fromkeys(declared.options.aliases, declared.name)
    if named[PROCESS] and not processes:
        _log.error(
            "tasks %s need a child process and are not claimed here: the app has no name to import it by"
            " (make it a variable of a module), or children is 0",
            ", ".join(named[PROCESS]),
        )
        named[PROCESS] = []
    slots = {LOOP: settings.concurrency, THREAD: settings.threads, PROCESS: settings.children}
    return {name: ExecutorLoad(name, slots[name], tuple(named[name]), aliases=aliases) for name in named}
