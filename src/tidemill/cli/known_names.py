"""Names of queues, tasks and tenants that users type, compared with those that exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from tidemill.cli.context import CommandContext
from tidemill.client.stats.loads import is_living, queue_stats, waiting_tasks
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.records import PauseKind
from tidemill.errors import UsageError

NOTHING = "nothing was changed"


def existing_names(context: CommandContext, kind: PauseKind) -> set[str]:
    """Return the names of a kind that the app declares, that a living worker serves, or that waiting jobs have."""
    if kind is PauseKind.TENANT:
        return {state.name for state in context.control.tenants()}
    now = context.now()
    living = [worker for worker in context.store.workers() if is_living(worker, now)]
    if kind is PauseKind.QUEUE:
        declared = {task.options.queue for task in context.registry}
        served = {queue for worker in living for queue in worker.queues}
        return {queue.name for queue in queue_stats(context.store, also=served | declared)}
    served = {task for worker in living for task in worker.tasks}
    paused = {pause.name for pause in context.store.pauses() if pause.kind is PauseKind.TASK}
    return {*context.registry.names(), *served, *paused, *waiting_tasks(context.store)}


def check_known(
    context: CommandContext, kind: PauseKind, names: Sequence[str], *, hint: str = NOTHING
) -> None:
    """Raise an error for the first of these names that nothing uses; ``hint`` is what to do if no name is similar."""
    problem = unknown_name(context, kind, names)
    if problem is not None:
        name, words, close = problem
        raise UsageError(f"{words}; {close or hint}", name=name)


def refuse_similar(context: CommandContext, queue: str) -> None:
    """Raise an error for a new queue whose name resembles an existing one, which is probably a typing error."""
    problem = unknown_name(context, PauseKind.QUEUE, [queue])
    if problem is not None and problem[2] is not None:
        _, words, close = problem
        raise UsageError(f"{words}; {close} --new allows a new queue", queue=queue)


def unknown_name(
    context: CommandContext, kind: PauseKind, names: Iterable[str]
) -> tuple[str, str, str | None] | None:
    """Return the first of these names that nothing uses, with an explanation and a suggestion if a name is similar."""
    existing: set[str] | None = None
    for name in names:
        if existing is None:
            existing = existing_names(context, kind)
        if name in existing or _has_jobs(context, kind, name):
            continue
        close = difflib.get_close_matches(name, existing, n=1)
        users = "job, pause or setting" if kind is PauseKind.TENANT else "task, worker or job"
        words = f"no task is named {name!r}" if kind is PauseKind.TASK else f"no {users} uses {kind} {name!r}"
        return name, words, f"did you mean {close[0]!r}?" if close else None
    return None


def _has_jobs(context: CommandContext, kind: PauseKind, name: str) -> bool:
    match kind:
        case PauseKind.TENANT:
            where = JobFilter(name)
        case PauseKind.TASK:
            where = JobFilter(ALL_TENANTS, tasks=frozenset({name}))
        case _:
            where = JobFilter(ALL_TENANTS, queues=frozenset({name}))
    return bool(context.store.count(where, most=1))
