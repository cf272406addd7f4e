"""Uses of Celery in Python files, and what becomes of each with ``tidemill.contrib.celery``."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple


class Verdict(StrEnum):
    """The treatment of a use by the migration."""

    WORKS = "works"
    IMPORT = "change the import"
    NOT_NEEDED = "not needed"
    DIFFERS = "works differently"
    MISSING = "not supported"


class UseRule(NamedTuple):
    """A verdict, and what to know about it."""

    verdict: Verdict
    note: str = ""


W, N, D, M = (Verdict.WORKS, Verdict.NOT_NEEDED, Verdict.DIFFERS, Verdict.MISSING)
_CANVAS = UseRule(W, "as a flow; a countdown applies to the first calls only")
_BROKER = UseRule(N, "there is no broker")
_ALWAYS = UseRule(N, "a job whose worker dies always runs again")
_JSON = UseRule(D, "JSON only; other serializers are refused")

_MODULES = {
    "celery": UseRule(Verdict.IMPORT, "tidemill.contrib.celery"),
    "celery.schedules": UseRule(Verdict.IMPORT, "tidemill.contrib.celery.schedules"),
    "celery.exceptions": UseRule(Verdict.IMPORT, "tidemill.contrib.celery.exceptions"),
    "celery.signals": UseRule(Verdict.IMPORT, "tidemill.contrib.celery.signals"),
    "celery.states": UseRule(Verdict.IMPORT, "tidemill.contrib.celery.states"),
    "celery.result": UseRule(Verdict.IMPORT, "tidemill.contrib.celery.result"),
    "celery.utils.log": UseRule(Verdict.IMPORT, "tidemill.contrib.celery.log"),
    "celery.app.task": UseRule(Verdict.IMPORT, "tidemill.contrib.celery, which has Task"),
    "celery.task": UseRule(M, "removed in Celery 5; use app.task"),
    "celery.canvas": UseRule(Verdict.IMPORT, "tidemill.contrib.celery"),
    "kombu": UseRule(M, "there is no broker; name queues as text"),
    "billiard": UseRule(M, "use multiprocessing"),
    "django_celery_beat": UseRule(D, "manage.py tidemill import-beat copies its rows into schedules"),
    "django_celery_results": UseRule(
        N, "results are in the store; admin of tidemill.contrib.django shows them"
    ),
    "flower": UseRule(N, "the dashboard"),
}
_NAMES = {
    "chain": _CANVAS,
    "group": _CANVAS,
    "chord": _CANVAS,
    "chunks": _CANVAS,
    "xmap": _CANVAS,
    "starmap": _CANVAS,
    "bootsteps": UseRule(M, "worker plug-ins do not exist; use App(lifespan=…)"),
    "solar": UseRule(M, "schedule the task at a fixed time"),
}
_TASK_OPTIONS = {
    **dict.fromkeys(
        (
            "name", "bind", "base", "max_retries", "default_retry_delay", "autoretry_for", "dont_autoretry_for",
            "retry_backoff", "retry_backoff_max", "retry_jitter", "retry_kwargs", "soft_time_limit", "queue",
            "expires", "track_started", "typing", "throws",
        ),
        UseRule(W),
    ),
    "time_limit": UseRule(W, "the task runs in a child process"),
    "rate_limit": UseRule(D, "for all workers together, not for each"),
    "priority": UseRule(D, "higher priorities run first, as with RabbitMQ"),
    "ignore_result": UseRule(D, "the state is kept, the value is not"),
    "serializer": _JSON,
    "acks_late": _ALWAYS,
    "acks_on_failure_or_timeout": _ALWAYS,
    "reject_on_worker_lost": _ALWAYS,
    "send_events": UseRule(N, "events are always there"),
    "store_errors_even_if_ignored": UseRule(N, "errors are always kept"),
    "trail": UseRule(N, "a job knows its children"),
    "compression": _BROKER,
    "routing_key": UseRule(M, "use queue"),
    "exchange": UseRule(M, "use queue"),
    "pydantic": UseRule(M, "declare the task with @app.task of a Tidemill App, which checks annotations"),
}  # fmt: skip
_CALL_OPTIONS = {
    **dict.fromkeys(
        ("args", "kwargs", "countdown", "eta", "expires", "queue", "task_id", "soft_time_limit", "headers"),
        UseRule(W),
    ),
    "priority": _TASK_OPTIONS["priority"],
    "time_limit": UseRule(
        D, "kills only tasks that have a time limit of their own, which run in a child process"
    ),
    "ignore_result": _TASK_OPTIONS["ignore_result"],
    "link": _CANVAS,
    "link_error": _CANVAS,
    "chord": UseRule(M, "use chord(header)(body)"),
    "serializer": _JSON,
    "retry": _BROKER,
    "retry_policy": _BROKER,
    "compression": _BROKER,
    "connection": _BROKER,
    "producer": _BROKER,
    "add_to_parent": UseRule(N, "a job always knows its parent"),
    "routing_key": UseRule(M, "use queue"),
    "exchange": UseRule(M, "use queue"),
    "shadow": UseRule(M, "a job has the name of its task"),
}
_CALLS = {
    **dict.fromkeys(
        (
            "delay", "apply_async", "delay_on_commit", "send_task", "retry", "update_state", "AsyncResult",
            "autodiscover_tasks", "config_from_object", "add_periodic_task", "register_task", "signature", "s", "si",
        ),
        UseRule(W),
    ),
    **dict.fromkeys(
        ("chain", "group", "chord", "chunks", "starmap", "link_error", "on_error", "GroupResult"), _CANVAS
    ),
    "revoke": UseRule(D, "a running task is only asked to stop, with terminate=True"),
    "crontab": UseRule(D, "refused if day_of_week and day_of_month are both given"),
    "add_consumer": UseRule(M, "name the queues of a worker: tidemill worker --queues"),
    "broadcast": UseRule(M, "use the CLI or the HTTP API"),
    "purge": UseRule(M, "tidemill jobs cancel"),
    "worker_main": UseRule(M, "tidemill worker"),
}  # fmt: skip
_SETTINGS = {
    **dict.fromkeys(
        (
            "beat_schedule", "enable_utc", "imports", "include", "task_always_eager", "task_annotations",
            "task_default_priority", "task_default_queue", "task_eager_propagates", "task_routes",
            "task_soft_time_limit", "task_time_limit", "task_track_started", "timezone",
        ),
        UseRule(W),
    ),
    "task_default_rate_limit": _TASK_OPTIONS["rate_limit"],
    "task_ignore_result": _TASK_OPTIONS["ignore_result"],
    "task_serializer": _JSON,
    "result_serializer": _JSON,
    "accept_content": UseRule(N, "only JSON is read"),
    "broker_url": UseRule(N, "TIDEMILL_STORE names the store"),
    "result_backend": UseRule(N, "results are in the store"),
    "result_expires": UseRule(D, "App(retention=…); results are kept for 30 days"),
    "task_queues": UseRule(M, "queues need no declaration; name them as text"),
    "task_acks_late": _ALWAYS,
    "task_reject_on_worker_lost": _ALWAYS,
    "worker_concurrency": UseRule(N, "tidemill worker --threads, --processes"),
    "worker_prefetch_multiplier": UseRule(N, "workers claim what they can run"),
    "worker_max_tasks_per_child": UseRule(N, "tidemill worker --max-memory"),
}  # fmt: skip
_SIGNALS = {
    "before_task_publish", "after_task_publish", "task_prerun", "task_postrun", "task_success", "task_retry",
    "task_failure", "worker_init", "worker_process_init", "worker_ready", "worker_process_shutdown", "worker_shutdown",
    "on_after_configure", "on_after_finalize",
}  # fmt: skip
_CONTROL = {
    "inspect": UseRule(M, "app.stats, tidemill workers, or the dashboard"),
    "ping": UseRule(M, "tidemill workers list"),
    "rate_limit": UseRule(M, "tidemill limits set"),
    "shutdown": UseRule(M, "tidemill workers drain"),
    "cancel_consumer": UseRule(M, "tidemill queues pause"),
}
"""Remote control beyond ``revoke`` and the calls above."""
_COMMANDS = UseRule(M, "workers take no remote commands; use the CLI or the HTTP API")
_OF_TASKS = {
    "replace": UseRule(M, "return the value, or add the next call to the chain"),
    "add_to_chord": UseRule(M, "declare a flow"),
    "on_replace": UseRule(M, "nothing is replaced"),
    "backend": UseRule(M, "use app.AsyncResult"),
    "send_event": UseRule(M, "use app.emit, or ctx.log"),
    "shadow_name": UseRule(M, "a job has the name of its task"),
    **dict.fromkeys(
        (
            "push_request",
            "pop_request",
            "request_stack",
            "add_trail",
            "add_around",
            "start_strategy",
            "from_config",
        ),
        UseRule(M, "internals of Celery"),
    ),
}
"""Attributes of tasks that the shim does not have."""
_ANYWHERE = {
    **dict.fromkeys(
        (
            "connection_for_read",
            "connection_for_write",
            "connection_or_acquire",
            "broker_connection",
            "producer_or_acquire",
            "producer_pool",
            "select_queues",
        ),
        UseRule(M, "there is no broker"),
    ),
    **dict.fromkeys(
        ("get_leaf", "iterdeps", "build_graph", "maybe_throw", "maybe_reraise"),
        UseRule(M, "app.flows shows the jobs of a canvas"),
    ),
    "revoke_by_stamped_headers": UseRule(M, "tidemill jobs cancel, with a filter"),
    "setup_security": UseRule(M, "give keys and roles to the users of the API"),
    "config_from_envvar": UseRule(M, "use config_from_object"),
}
"""Attributes with names that only Celery has."""
_FUNCTIONS = {"crontab", "AsyncResult", "signature", "chain", "group", "chord"}
_SKIPPED = {".git", ".venv", "venv", "node_modules", "__pycache__", ".tox", "site-packages"}


@dataclass(frozen=True, slots=True)
class CeleryUse:
    """One use in a file."""

    file: Path
    line: int
    use: str
    verdict: Verdict
    note: str


class Unreadable(NamedTuple):
    """A file that Python cannot parse."""

    file: Path
    problem: str


def find_uses(paths: list[Path]) -> tuple[list[CeleryUse], list[Unreadable]]:
    """Return the uses in these files and folders, and the files that cannot be read."""
    uses: list[CeleryUse] = []
    unreadable: list[Unreadable] = []
    for file in _files(paths):
        try:
            tree = ast.parse(file.read_text("utf-8"), str(file))
        except (SyntaxError, UnicodeDecodeError) as error:
            unreadable.append(Unreadable(file, str(error)))
            continue
        reader = _Reader(file)
        reader.read(tree)
        uses += sorted(set(reader.uses), key=lambda use: (use.line, use.use))
    return uses, unreadable


def _files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*.py")) if not _SKIPPED & set(file.parts))
        else:
            yield path


class _Reader:
    """Collects the uses of one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.uses: list[CeleryUse] = []

    def read(self, tree: ast.Module) -> None:
        """Collect the uses below a node."""
        handlers: dict[type[ast.AST], Callable[[Any], None]] = {
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.FunctionDef: self._function,
            ast.ClassDef: self._class,
            ast.AsyncFunctionDef: self._coroutine_function,
            ast.Call: self._call,
            ast.Attribute: self._attribute,
            ast.BinOp: self._operator,
        }
        for node in ast.walk(tree):
            if (handle := handlers.get(type(node))) is not None:
                handle(node)

    def _note(self, node: ast.AST, use: str, rule: UseRule) -> None:
        line = getattr(node, "lineno", 0)
        self.uses.append(CeleryUse(self._file, line, use, rule.verdict, rule.note))

    # Imports ---------------------------------------------------------------------------------------------------------

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            if (rule := _module_rule(alias.name)) is not None:
                self._note(node, f"import {alias.name}", rule)

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level or (rule := _module_rule(module)) is None:
            return
        self._note(node, f"from {module} import …", rule)
        for alias in node.names:
            if module.startswith("celery") and alias.name in _NAMES:
                self._note(node, alias.name, _NAMES[alias.name])

    # Declarations ----------------------------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            name = _last_name(call.func if call else decorator)
            if name in ("task", "shared_task"):
                self._note(decorator, f"@{name} {node.name}", UseRule(W))
                if node.args.args and any(option == "bind" for option, _ in _keywords(call)):
                    self._of_task(node, node.args.args[0].arg)
                for option, where in _keywords(call):
                    self._note(
                        where,
                        f"@{name} {option}=",
                        _TASK_OPTIONS.get(option, UseRule(W, "an attribute of the task")),
                    )

    def _class(self, node: ast.ClassDef) -> None:
        if any(_last_name(base) == "Task" for base in node.bases):
            self._of_task(node, "self")

    def _of_task(self, tree: ast.AST, own: str) -> None:
        """Collect what the code of a task uses of the task itself, which has this name there."""
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == own
                and (rule := _OF_TASKS.get(node.attr)) is not None
            ):
                self._note(node, f"{own}.{node.attr}", rule)

    def _coroutine_function(self, node: ast.AsyncFunctionDef) -> None:
        if any(
            _last_name(getattr(item, "func", item)) in ("task", "shared_task") for item in node.decorator_list
        ):
            self._note(
                node, f"async def {node.name}", UseRule(M, "Celery and its shim call plain functions only")
            )

    # Calls and settings ----------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        name = _last_name(node.func)
        owner = _last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        of_celery = owner not in ("re", "inspect", "requests")
        if (
            name in _CALLS
            and of_celery
            and (owner or not isinstance(node.func, ast.Name) or name in _FUNCTIONS)
        ):
            self._note(node, f"{name}()", _CALLS[name])
        if name in ("apply_async", "send_task"):
            for option, where in _keywords(node):
                self._note(
                    where, f"{name} {option}=", _CALL_OPTIONS.get(option, UseRule(M, "unknown option"))
                )
        if name == "connect" and owner:
            self._signal(node, owner)
        if name == "update" and owner == "conf":
            for option, where in _keywords(node):
                self._setting(where, option)

    def _attribute(self, node: ast.Attribute) -> None:
        if _last_name(node.value) == "control" and node.attr not in _CALLS:
            self._note(node, f"control.{node.attr}", _CONTROL.get(node.attr, _COMMANDS))
        if (rule := _ANYWHERE.get(node.attr)) is not None:
            self._note(node, node.attr, rule)
        if isinstance(node.ctx, ast.Store) and _last_name(node.value) == "conf":
            self._setting(node, node.attr)
        if node.attr == "connect" and _last_name(node.value) in _SIGNALS:
            self._signal(node, _last_name(node.value))

    def _operator(self, node: ast.BinOp) -> None:
        sides = [_last_name(side.func) for side in (node.left, node.right) if isinstance(side, ast.Call)]
        if isinstance(node.op, ast.BitOr) and {"s", "si"} & set(sides):
            self._note(node, "a.s() | b.s()", _CANVAS)

    def _signal(self, node: ast.AST, name: str) -> None:
        if name in _SIGNALS:
            self._note(node, f"signal {name}", UseRule(W))
        elif name.startswith(("task_", "worker_", "beat_", "celeryd_", "eventlet_")):
            self._note(node, f"signal {name}", UseRule(M, "it is never sent"))

    def _setting(self, node: ast.AST, name: str) -> None:
        key = name.lower()
        rule = _SETTINGS.get(key)
        if rule is None:
            rule = (
                _BROKER
                if key.startswith(("broker_", "result_", "redis_", "worker_"))
                else UseRule(N, "no effect")
            )
        self._note(node, f"conf.{name}", rule)


def _module_rule(module: str) -> UseRule | None:
    if module in _MODULES:
        return _MODULES[module]
    first = module.partition(".")[0]
    if first == "celery":
        return UseRule(M, "internals of Celery")
    return _MODULES.get(first)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _keywords(call: ast.Call | None) -> Iterator[tuple[str, ast.AST]]:
    for keyword in call.keywords if call is not None else ():
        if keyword.arg is not None:
            yield keyword.arg, keyword.value
