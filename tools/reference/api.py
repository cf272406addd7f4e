"""``docs/reference/api.md``: every public name with its signature and docstring."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ForwardRef

import tidemill
import tidemill.testing
from tidemill import dashboard, rest
from tools.reference.internals import AppKeywords, CallKeywords, TaskOptions
from tools.reference.markdown import prose, table

HEAD = """# API reference

Every public name of `tidemill`, `tidemill.rest`, `tidemill.dashboard` and `tidemill.testing`, with its signature and docstring.
[Tasks and jobs](../tasks.md), [schedules](../schedules.md) and [limits](../limits.md) explain how to use the names.
[Error codes](errors.md) lists the exceptions in `tidemill.errors`, and [settings](settings.md) the settings of an app.
Every parameter that is a `timedelta` here also takes a number of seconds or a text: see [durations](../durations.md).
"""

GROUPS = {
    "App and tasks": ["App", "TaskGroup", "task", "BoundTask", "Task", "ItemTask", "Recipe", "Context", "current"],
    "Jobs": ["Job", "JobState", "Execution", "Unique", "Duration"],
    "Retries": ["Exponential", "Linear", "Fixed", "Immediate", "NoRetry"],
    "Limits": ["Limit", "Rate", "Breaker"],
    "Schedules": [
        "Cron", "Every", "Daily", "Weekly", "Monthly", "MonthlyBusinessDay", "Once", "Manual", "All", "SKIP",
        "BusinessCalendar", "Exclude", "country_calendar", "country_holidays", "exchange_holidays",
    ],
    "Signals": ["Retry", "Snooze", "Cancel", "Review", "PermanentError"],
    "Stores and operation": ["open_store", "Store", "AppLease", "ArchivePolicy", "Retention", "Thresholds"],
    "Events, access and tests": ["Event", "Counts", "Role", "Identity", "acting", "ManualClock"],
}  # fmt: skip
"""The section of each name; names in no section go under "Other names"."""

MADE_BY_TIDEMILL = {"BoundTask", "Job", "Context", "Recipe", "Event", "Counts", "Execution", "Store"}
"""Classes that users receive and do not construct."""

WITHOUT_MEMBERS = {
    "Store": "Pass it to `App`, and close it.\nThe verbs are for Tidemill itself and for authors of a [store](../stores.md#your-own-store)."
}
"""Classes whose members are not part of the public API, with a note."""

NOTES = {
    "Unique": '`on_conflict` is `"return"` (the existing job is returned), `"replace"` (it is cancelled), `"extend"` (its time is '
    'moved to that of the new one: a debounce) or `"raise"` (`JobExists`).',
    "Store": "[Stores](../stores.md) explains the contract.",
    "Limit": "`key` is the name of an argument, or a function of the arguments; each value has a limit of its own.",
    "Rate": "`key` is the name of an argument, or a function of the arguments; each value has a rate of its own.",
}
"""Additions to the signatures."""

ALIASES = {
    "Duration": 'A `timedelta`, a number of seconds, or a text such as `"10m"`: see [durations](../durations.md).',
}
"""Type aliases, with their meaning."""

TASK_OPTIONS = {
    "name": "name of the task; by default the function's name",
    "queue": "queue of its jobs",
    "priority": "-100 to 100; higher runs first",
    "retry": "a policy such as `Exponential(max_attempts=5)`, a number of attempts (`retry=3`), the name of a preset, or `None` for one attempt",
    "timeout": "time limit of one attempt; `None` for no limit",
    "max_concurrent": "jobs of this task at the same time, across all workers; 0 for no limit",
    "limits": "`Limit` and `Rate` rules",
    "breaker": "a `Breaker`, or the name of a shared one",
    "scope": '`"cluster"`: a fire of a schedule is one job; `"instance"`: one on every node; `"process"`: one in every runner process',
    "isolation": '`"auto"`, `"thread"` or `"process"`: where the task runs',
    "unique": "a `Unique` rule for every job",
    "stages": "names of the stages that the task goes through",
    "audit": "whether every enqueue is recorded in the audit log",
    "tags": "tags of every job",
    "environment": "the only environment of apps in which the task is enqueued and runs; by default any",
    "owner": "the person or team responsible, who is notified of permanent failures if `App(owners=…)` has their address",
    "notify": 'channels of `App(notify=…)`, or owners, that are notified of permanent failures; or of chosen events: `{"completed": ["users"]}`',
    "description": "purpose of the task; by default the first line of its docstring",
    "result_limit": "bytes of a result in the row of its job; a larger one is spilled",
    "max_result": "bytes beyond which a result is not kept",
    "large_results": '`"spill"` or `"refuse"`: what happens to a result beyond `result_limit`',
    "record": 'which executions are kept after the end: `"full"`, `"last"` or `"none"`',
    "orphans": "what happens to the jobs of a worker that died",
    "should_retry": "function that receives the execution and returns whether to retry",
    "retry_delay": "function that receives the execution and returns the delay, or `None` for the policy's own",
    "aliases": "earlier names of the task; jobs stored under them still run",
    "extra": '`"refuse"` or `"ignore"`: unknown arguments in a stored job',
    "store": "name of the app's store that its jobs go to; see [several stores](../howto/several-stores.md)",
    "version": "version of the code of a durable function; workers with older code leave jobs of a newer version alone",
    "resumes": "oldest version whose jobs this code resumes; jobs of older versions go to review",
    "steps": '`"warn"`: a recorded step that is called in another way is logged; `"strict"`: the job goes to review',
}

APP_SETTINGS = {
    "alerts": "how often workers evaluate the alert rules, one minute by default; `False` for never",
    "args_limit": "bytes of arguments in the row of a job; larger ones are spilled",
    "blobs": "URL of a directory or bucket for large arguments and results; by default a table of the store",
    "capture_logs": "lowest level of log records that are copied into the log of their job, `WARNING` by default; `None` for none",
    "dashboard_url": "address of the dashboard, for links in notifications",
    "large_results": '`"spill"` or `"refuse"`: what happens to a result beyond `result_limit`',
    "retention": "how long ended jobs stay in the live tables: a `Retention`, or a list of `ArchivePolicy`",
    "limits": "limits by name, for several tasks",
    "secret_names": "names of further values that are masked and scrubbed; also `TIDEMILL_SECRET_NAMES`",
    "environment": "environment of the app and its workers, such as `production`; also `TIDEMILL_ENVIRONMENT`",
    "log_jobs": "whether the start and the end of every job are logged at level info",
    "max_args": "bytes beyond which arguments are refused",
    "max_result": "bytes beyond which a result is not kept",
    "result_limit": "bytes of a result in the row of its job; a larger one is spilled",
    "migrate": "create or update the tables when the app is made",
    "name": "name of the app, for its declared schedules",
    "notifications": "`NotificationRule`s: which events are sent to which channel; see [notifications](../howto/notifications.md)",
    "notify": "channels of notifications by name: `https://…#whsec_…`, `mailto:…`, or a URL of apprise",
    "outgoing_networks": "private networks that webhooks and heartbeats may reach, such as `10.0.0.0/8`",
    "owners": "addresses of owners by name, who are notified of permanent failures of their tasks and definitions",
    "reads": '`"standby"`: lists, statistics and dashboards from a standby, or its URL; see [high availability](../howto/high-availability.md)',
    "release": "release of the code, which decides whose declared schedules count; also `TIDEMILL_RELEASE`",
    "lifespan": "function that receives the app and returns a context manager, which every runner enters; `ctx.state` is its value",
    "smtp": "mail server of `mailto:` channels: `smtp://user:password@host:587?from=jobs@example.com`",
    "task_names": "default name of a task: that of its `function`, or `module` for `module.function`",
    "place": "function that receives a new tenant and returns the name of its shard, or `None`; see [shards](../howto/shards.md)",
    "shards": "databases by name among which tenants are divided: URLs, stores or `Shard` objects; see [shards](../howto/shards.md)",
    "store_for": "function that receives a tenant and returns the name of its store, or `None`",
}

CALL_OPTIONS = {
    "priority": "-100 to 100; higher runs first",
    "queue": "queue of the job",
    "run_after": "earliest time: an aware `datetime`, or a duration from now",
    "delay": "earliest time as a duration from now",
    "tenant": "tenant of the job",
    "correlation_id": "id shared with related jobs",
    "parent": "job that this one belongs to; inside a job it is that job",
    "tags": "tags, in addition to the task's own",
    "metadata": "JSON values by name, which jobs can be found by",
    "reference": 'subject of the job: `("user", "42")`',
    "unique": "a `Unique` rule for this job",
    "headers": "texts by name, such as `traceparent`, which travel with the job",
    "expires": "the job is cancelled if it has not started by then",
    "store": "name of one of the app's stores",
    "audit": "whether this enqueue is recorded in the audit log",
    "connection": "your own open connection or session; the job is stored in its transaction",
    "retry": "retry policy, instead of the task's own",
    "timeout": "time limit of one attempt, instead of the task's own",
    "record": 'which executions are kept after the end: `"full"`, `"last"` or `"none"`',
}


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_groups(), *_web()]).rstrip() + "\n"


def _groups() -> Iterator[str]:
    named = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "Other names": [name for name in tidemill.__all__ if name not in named]}
    for heading, names in groups.items():
        if names:
            yield f"## {heading}\n"
        for name in names:
            yield from _entry(name, getattr(tidemill, name))


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield _text(value) + "\n"
        yield "Values: " + ", ".join(f"`{member.value}`" for member in value) + ".\n"
        return
    if name in ALIASES:
        yield ALIASES[name] + "\n"
        return
    if not callable(value):
        yield f"`{name}`: an instance of `{type(value).__name__}`.\n"
        return
    if name not in MADE_BY_TIDEMILL:
        yield _code(f"{name}{_signature(value)}")
    yield _text(value) + "\n"
    if name in NOTES:
        yield NOTES[name] + "\n"
    if name == "App":
        yield from _table("Settings of `App(…)`:", APP_SETTINGS)
        yield from _table("Options of `@app.task(…)`:", TASK_OPTIONS)
    if name == "BoundTask":
        yield from _table("Options of `task.using(…)` and of `app.recipe(…)`:", CALL_OPTIONS)
    if name in WITHOUT_MEMBERS:
        yield WITHOUT_MEMBERS[name] + "\n"
    elif isinstance(value, type):
        yield from _members(value)


def _members(owner: type) -> Iterator[str]:
    twins = []
    for name, member in _public(owner):
        if name[0] == "a" and (name[1:] in dict(_public(owner))):
            twins.append(f"`{name}`")
            continue
        if isinstance(member, property):
            yield f"**`{name}`** – {_text(member.fget, brief=True)}\n"
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        yield _code(f"{owner.__name__}.{name}{_signature(function, method=True)}")
        yield _text(function) + "\n"
    if twins:
        yield f"Async versions: {', '.join(twins)}.\n"


def _public(owner: type) -> list[tuple[str, Any]]:
    """The methods and properties of a class and its tidemill bases, in source order."""
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] == "tidemill":
            found |= vars(base)
    kinds = (property, classmethod, staticmethod)
    return [
        (name, member)
        for name, member in found.items()
        if not name.startswith("_") and (isinstance(member, kinds) or inspect.isfunction(member))
        and (dataclasses.is_dataclass(owner) is False or isinstance(member, (*kinds, type(_public))))
    ]  # fmt: skip


def _table(title: str, rows: dict[str, str]) -> Iterator[str]:
    yield f"{title}\n\n{table(('name', 'meaning'), [(f'`{name}`', text) for name, text in rows.items()])}\n"


def _web() -> Iterator[str]:
    yield "## Web and tests\n"
    named = {
        "tidemill.rest.create_api": rest.create_api,
        "tidemill.rest.ApiSettings": rest.ApiSettings,
        "tidemill.dashboard.create_site": dashboard.create_site,
    }
    for name, value in named.items():
        yield f"### {name}\n"
        yield _code(f"{name.rpartition('.')[2]}{_signature(value)}")
        yield _text(value) + "\n"
    yield "### tidemill.testing\n"
    yield prose(tidemill.testing.__doc__ or "") + "\n"


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def _signature(value: Any, *, method: bool = False) -> str:
    """The parameters as written in the code; one per line if they do not fit on one."""
    try:
        found = inspect.signature(value)
    except ValueError:  # an exception without its own __init__
        return "(*args)"
    parameters = list(found.parameters.values())
    if method and parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    marks: list[str] = []
    for number, parameter in enumerate(parameters):
        before = parameters[number - 1].kind if number else None
        if before is parameter.POSITIONAL_ONLY and parameter.kind is not parameter.POSITIONAL_ONLY:
            marks.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            marks.append("*")
        marks.append(_parameter(parameter))
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        marks.append("/")
    returned = "" if isinstance(value, type) else _annotation(found.return_annotation)
    after = f" -> {returned}" if returned else ""
    line = f"({', '.join(marks)}){after}"
    if len(line) <= 90:
        return line
    return "(\n" + "".join(f"    {mark},\n" for mark in marks) + f"){after}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else stars
    annotation = _annotation(parameter.annotation)
    text = f"{stars}{parameter.name}" + (f": {annotation}" if annotation else "")
    if parameter.default is parameter.empty:
        return text
    return (
        f"{text} = {_default(parameter.default)}" if annotation else f"{text}={_default(parameter.default)}"
    )


def _annotation(given: Any) -> str:
    if given is inspect.Parameter.empty:
        return ""
    if isinstance(given, ForwardRef):  # the fields of a NamedTuple
        return given.__forward_arg__
    return given if isinstance(given, str) else inspect.formatannotation(given)


def _default(value: Any) -> str:
    """A default value as source code; ``…`` for an object without a short form."""
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if isinstance(value, timedelta):
        whole_days = value.total_seconds() % 86_400 == 0 and value.days
        return (
            f"timedelta(days={value.days})" if whole_days else f"timedelta(seconds={value.total_seconds():g})"
        )
    text = repr(value)
    return "…" if len(text) > 30 or text.startswith("<") else text


def _text(value: Any, *, brief: bool = False) -> str:
    """A docstring as Markdown; with ``brief`` only its first paragraph, on one line."""
    found = inspect.getdoc(value) or ""
    if isinstance(value, type) and dataclasses.is_dataclass(value) and found.startswith(f"{value.__name__}("):
        found = ""
    text = found.replace("``", "`")
    if brief:
        return " ".join(text.partition("\n\n")[0].split())
    return _with_examples(text)


def _with_examples(text: str) -> str:
    """One sentence per line, with ``>>>`` examples and literal blocks in code blocks."""
    parts = []
    for part in text.split("\n\n"):
        if part.lstrip().startswith(">>>"):
            parts.append(f"```text\n{part}\n```")
        elif part.startswith(("-", "    ")):
            parts.append(part)
        else:
            parts.append(prose(part))
    return "\n\n".join(parts)


def undocumented() -> list[str]:
    """Options and settings that are missing from the tables, or that no longer exist."""
    pairs = (
        (TASK_OPTIONS, TaskOptions.__dataclass_fields__),
        (APP_SETTINGS, AppKeywords.__annotations__),
        (CALL_OPTIONS, CallKeywords.__annotations__),
    )
    return [name for table, real in pairs for name in sorted(set(table) ^ set(real))]
