"""Shell completion of the names in an app and its store."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from tidemill.configuration import store_url, value_of
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import ENDED, LIVE, JobState

MOST = 60
"""Maximum number of jobs, flows and log searches that are offered."""

TAIL = 12
"""Characters at the end of a job's id, as tables show them."""

Complete = Callable[[click.Context, click.Parameter, str], list[Any]]


def completes(find: Callable[[Any], Iterable[Any]]) -> Complete:
    """Make a completion from a function that reads names from a command context.

    An app that fails to import, prints, or has a store that does not answer completes nothing: neither a traceback nor
    other text may appear in the line that the user is typing.
    """

    @functools.wraps(find)
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[Any]:
        items: list[Any] = []
        with contextlib.suppress(Exception), _quiet(), _opened(context) as opened:
            items = list(find(opened)) if opened is not None else []
        chosen = [item for item in items if _value(item).startswith(incomplete)]
        return chosen if chosen and isinstance(chosen[0], CompletionItem) else sorted(set(chosen))

    return complete


def _value(item: Any) -> str:
    return str(item.value) if isinstance(item, CompletionItem) else str(item)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def _opened(context: click.Context) -> Iterator[Any]:
    """Open the app or store given before the cursor, or by the settings; None if nothing names one."""
    from tidemill.cli.app_argument import APP
    from tidemill.cli.context import CommandContext

    params = context.params
    app = (
        params.get("app_name") or context.meta.get(APP) or _unparsed_app(context) or value_of("TIDEMILL_APP")
    )
    configured = store_url()
    url = params.get("url") or (None if configured is None else configured.value)
    if url and context.get_parameter_source("url") is ParameterSource.COMMANDLINE:
        app = None
    if not app and not url:
        yield None
        return
    with CommandContext(app, url, as_json=False, store_name=params.get("store_name")) as opened:
        yield opened


def _unparsed_app(context: click.Context) -> str | None:
    """Return the app argument before an option without its value, at which click stops parsing."""
    takes_app = any(
        param.name == "app" and isinstance(param, click.Argument) for param in context.command.params
    )
    return context.args[0] if takes_app and context.args else None


@completes
def task_names(opened: Any) -> Iterable[str]:
    """Complete the names of the app's tasks."""
    names: list[str] = opened.registry.names()
    if names:
        return names
    from tidemill.cli.known_names import existing_names
    from tidemill.domain.records import PauseKind

    return existing_names(opened, PauseKind.TASK)


@completes
def queue_names(opened: Any) -> Iterable[str]:
    """Complete the names of queues that tasks, workers or waiting jobs use."""
    from tidemill.cli.known_names import existing_names
    from tidemill.domain.records import PauseKind

    return existing_names(opened, PauseKind.QUEUE)


@completes
def tenant_names(opened: Any) -> Iterable[str]:
    """Complete the names of tenants."""
    return [state.name for state in opened.control.tenants()]


@completes
def schedule_keys(opened: Any) -> Iterable[str]:
    """Complete the keys of the schedules in the store."""
    from tidemill.client.schedules.api import Schedules

    return [schedule.key for schedule in Schedules(opened.client).list(tenant=ALL_TENANTS)]


@completes
def limit_names(opened: Any) -> Iterable[str]:
    """Complete the names of limits."""
    return [limit.name for limit in opened.limits.list()]


@completes
def worker_names(opened: Any) -> Iterable[str]:
    """Complete the names of living workers."""
    from tidemill.client.stats.loads import is_living

    now = opened.now()
    return [worker.name or str(worker.id) for worker in opened.store.workers() if is_living(worker, now)]


@completes
def definition_keys(opened: Any) -> Iterable[str]:
    """Complete the keys of definitions."""
    from tidemill.client.schedules.definitions import Definitions

    return [definition.key for definition in Definitions(opened.client).list(tenant=ALL_TENANTS)]


@completes
def lease_names(opened: Any) -> Iterable[str]:
    """Complete the names of leases and locks."""
    from tidemill.stores.lock_server import leases_and_locks

    return [lease.name for lease in leases_and_locks(opened.store)]


@completes
def subscription_names(opened: Any) -> Iterable[str]:
    """Complete the names of subscriptions."""
    from tidemill.client.subscriptions import Subscriptions

    return [subscription.name for subscription in Subscriptions(opened.client).list()]


@completes
def setting_keys(opened: Any) -> Iterable[str]:
    """Complete the keys of settings that Tidemill reads, and of those in the store."""
    return [*known_settings(), *(setting.key for setting in opened.control.settings())]


def known_settings() -> list[str]:
    """Return the keys of the settings that Tidemill reads."""
    from dataclasses import fields

    from tidemill.client.control import KNOWN_SETTINGS
    from tidemill.domain.alerts import PREFIX, Thresholds

    return [*KNOWN_SETTINGS, *(PREFIX + field.name for field in fields(Thresholds))]


@completes
def key_ids(opened: Any) -> Iterable[CompletionItem]:
    """Complete the ids of active API keys."""
    from tidemill.client.access import Keys
    from tidemill.client.documents import key_state

    now = opened.now()
    keys = Keys(opened.app_client).list()
    return [
        CompletionItem(key.id, help=f"{key.role.value} {key.name}")
        for key in keys
        if key_state(key, now) == "active"
    ]


@completes
def error_groups(opened: Any) -> Iterable[CompletionItem]:
    """Complete the fingerprints of groups of errors, as tables show them."""
    from datetime import timedelta

    rows = opened.errors.list(timedelta(days=60), tenant=ALL_TENANTS)
    return [CompletionItem(row.fingerprint[:8], help=f"{row.jobs} {row.type or row.task}") for row in rows]


def archived_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the ids of the newest archived jobs: the end of an id, as tables show it, or the whole id."""
    from tidemill.client.archive import Archive
    from tidemill.client.jobs.api import Jobs

    typed = incomplete.lower()

    def find(opened: Any) -> Iterator[CompletionItem]:
        page = Archive(opened.client, Jobs(opened.client)).search(limit=MOST, tenant=ALL_TENANTS)
        for job in page.items:
            yield from _id_item(job.id, typed, f"{job.state.value} {job.task}")

    return completes(find)(context, parameter, typed)


def _id_item(id: object, typed: str, words: str) -> Iterator[CompletionItem]:
    """Yield the end of an id, or else the whole id, if it begins with the typed characters."""
    tail = str(id)[-TAIL:]
    value = tail if tail.startswith(typed) else str(id)
    if value.startswith(typed):
        yield CompletionItem(value, help=words)


def flow_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the ids of the newest flows: the end of an id, as tables show it, or the whole id."""
    from tidemill.client.flows.api import Flows

    return _run_ids(Flows, context, parameter, incomplete)


def batch_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the ids of the newest batches: the end of an id, as tables show it, or the whole id."""
    from tidemill.client.flows.batches import Batches

    return _run_ids(Batches, context, parameter, incomplete)


def _run_ids(api: Any, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from tidemill.tasks.ambient import tenant_scope

    typed = incomplete.lower()

    def find(opened: Any) -> Iterator[CompletionItem]:
        with tenant_scope(ALL_TENANTS):
            runs = api(opened.client).list(limit=MOST)
        for run in runs:
            yield from _id_item(run.id, typed, f"{run.row.state} {run.name}")

    return completes(find)(context, parameter, typed)


def report_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of reports."""
    from tidemill.cli.stats_reports import names

    return [name for name in names() if name.startswith(incomplete)]


_ENDED_BADLY = ENDED - {JobState.COMPLETED}

_SUITABLE = {
    "cancel": LIVE,
    "retry": _ENDED_BADLY,
    "delete": ENDED,
    "approve": frozenset({JobState.REVIEW_NEEDED}),
    "reject": frozenset({JobState.REVIEW_NEEDED}),
    "rerun": frozenset({JobState.REVIEW_NEEDED}),
    "reschedule": frozenset({JobState.SCHEDULED, JobState.PENDING}),
    "run-now": frozenset({JobState.SCHEDULED, JobState.PENDING}),
    "why": LIVE,
}
"""Statuses of the jobs that are offered, by verb; every status for the others."""


def job_ids(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Complete the ids of the newest suitable jobs: the end of an id, as tables show it, or the whole id."""
    states = _SUITABLE.get(context.info_name or "", frozenset())
    typed = incomplete.lower()

    def find(opened: Any) -> Iterator[CompletionItem]:
        for job in opened.store.jobs(JobFilter(ALL_TENANTS, states=states), limit=MOST).items:
            yield from _id_item(job.id, typed, f"{job.state.value} {job.task}")

    return completes(find)(context, parameter, typed)
