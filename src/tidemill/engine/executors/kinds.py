"""The kind of slot that a task's jobs run in: event loop, thread or process."""

from __future__ import annotations

import logging

from tidemill.engine.exchange.planner import ExecutorLoad
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.tasks.registry import BUILT_IN, Registry
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")

LOOP, THREAD, PROCESS = "loop", "thread", "process"


def kind_of(declared: Declared) -> str:
    """The kind of slot for a task's jobs."""
    match declared.options.isolation_name:
        case "process" | "sandbox" | "container":
            return PROCESS
        case "thread":
            return THREAD
    return LOOP if declared.is_async else THREAD


def thread_slots(settings: WorkerSettings) -> int:
    """The number of thread slots; a worker without threads for tasks has one for the built-in tasks."""
    return max(settings.threads, 1)


def _is_refused(declared: Declared) -> bool:
    """Whether this system cannot confine the task's jobs as declared; that is logged."""
    confinement = declared.options.confinement
    if confinement is None:
        return False
    from tidemill.engine.confinement.protection import advice, missing_protection, refusal

    problem, refused = missing_protection(confinement), refusal(confinement)
    if problem is None:
        return False
    kind = declared.options.isolation_name
    if refused is not None:
        _log.error(
            "task %s needs a %s and is not claimed here: %s; %s",
            declared.name,
            kind,
            problem,
            advice(confinement),
        )
        return True
    _log.warning(
        "task %s runs without its %s, only with limits and a clean environment, as strict=False allows: %s",
        declared.name,
        kind,
        problem,
    )
    return False


def kinds_of(tasks: Registry, settings: WorkerSettings, *, processes: bool) -> dict[str, ExecutorLoad]:
    """The kinds of slots with their numbers and tasks. Without processes, tasks that need one are not claimed here."""
    named: dict[str, list[str]] = {LOOP: [], THREAD: [], PROCESS: []}
    aliases: dict[str, str] = {}
    for declared in (*tasks, *tasks.own, *BUILT_IN.values()):
        if not tasks.is_served(declared) or (processes and _is_refused(declared)):
            continue
        names = tasks.names_of(declared)
        named[kind_of(declared)] += names
        aliases |= dict.fromkeys(names[1:], declared.name)
    if named[PROCESS] and not processes:
        _log.error(
            "tasks %s need a child process and are not claimed here: the app has no name to import it by"
            " (make it a variable of a module), or children is 0",
            ", ".join(named[PROCESS]),
        )
        named[PROCESS] = []
    if not settings.threads:
        # The built-in tasks of flows need a thread, and any worker must be able to run them.
        named[THREAD] = [declared.name for declared in BUILT_IN.values()]
    slots = {LOOP: settings.concurrency, THREAD: thread_slots(settings), PROCESS: settings.children}
    return {name: ExecutorLoad(name, slots[name], tuple(named[name]), aliases=aliases) for name in named}
