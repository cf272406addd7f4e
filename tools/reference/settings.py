"""``docs/reference/settings.md``: settings of apps, workers, the API and the store, and environment variables."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path

import tidemill
from tidemill import Thresholds
from tidemill.rest import ApiSettings
from tools.reference.api import APP_SETTINGS, TASK_OPTIONS
from tools.reference.internals import KNOWN_SETTINGS, TaskOptions, WorkerSettings
from tools.reference.markdown import code, table

HEAD = """# Settings

Settings come from five places:

- the call that creates the [app](#app) or the [task](#task),
- the [worker](#worker), as options of `tidemill worker` or arguments of `app.worker()`,
- the [HTTP API](#http-api-and-dashboard), as `ApiSettings`,
- the [store](#run-time-settings), where operators change them while the system runs,
- the [environment](#environment-variables).

The options of a store's URL are on the page about [stores](../stores.md).
"""

APP_CALL = {
    "store": "URL of the store, or a store; by default `TIDEMILL_STORE`, else `memory://`",
    "stores": "several stores by name: `default`, `jobs` and `archive` have a meaning",
    "tenant": "tenant of the jobs that name none",
    "clock": "clock of the app; tests pass a `ManualClock`",
}

PREFIXED = {
    "task/NAME": 'object: `{"max_attempts": 3, "timeout": 60}`; overrides the declared values of a task, with a `timeout` of null for none',
    "tenant/NAME": 'object: `{"weight": 2}`, the share of a tenant compared with others, and `{"max_priority": 10}`, its highest priority',
}

ENVIRONMENT = {
    "TIDEMILL_APP": "the app of the commands, as `module:attribute`; the option `--app` wins",
    "TIDEMILL_STORE": "URL of the store of `App()`, and of commands without an app",
    "TIDEMILL_STORE_NAME": "name of the store that a command addresses, if the app has several",
    "TIDEMILL_RELEASE": "release of the code; the same as `App(release=…)`",
    "TIDEMILL_NODE": 'name of this machine for `scope="instance"`; by default the host name',
    "TIDEMILL_CALLBACK_SECRET": "secret that signs the webhooks of `callback_url` and the URLs of `ctx.callback_url`: `whsec_` and base64; for workers and servers",
    "TIDEMILL_OUTGOING_NETWORKS": "private networks that a `callback_url` may reach, with commas: `10.1.0.0/16`",
    "TIDEMILL_HOOK_SHOP": "the hook `shop` of the HTTP API, as `kind:secret`; the end of the variable is the name of the hook",
    "TIDEMILL_KEY": "API key of `tidemill mcp`, whose tenant and role apply",
    "TIDEMILL_SESSION_SECRET": "secret that signs the dashboard's messages; set it if several processes serve it",
    "TIDEMILL_ENCRYPTION_KEYS": "keys of secret arguments and results, `NAME:BASE64` separated by commas; the first one seals",
    "TIDEMILL_SECRET_NAMES": "names of further secrets, with commas; the same as `App(secret_names=…)`",
    "TIDEMILL_ENVIRONMENT": "environment of the app and its workers; the same as `App(environment=…)`",
    "TIDEMILL_AUDIT_KEY": "key that signs and checks exports of the audit log",
    "TIDEMILL_OIDC_ISSUER": "address of the OpenID Connect provider for single sign-on",
    "TIDEMILL_OIDC_CLIENT_ID": "id of the server at the provider",
    "TIDEMILL_OIDC_CLIENT_SECRET": "secret of the server at the provider",
    "TIDEMILL_OIDC_ROLES": "roles of groups; see [single sign-on](../howto/single-sign-on.md)",
    "TIDEMILL_OIDC_CLAIM": "claim with the groups of a user",
    "TIDEMILL_OIDC_TENANT_CLAIM": "claim with the tenant or tenants of a user",
    "TIDEMILL_OIDC_AUDIENCE": "audience of access tokens for the HTTP API; by default the client id",
    "TIDEMILL_OIDC_REDIRECT_URI": "address that the provider sends users back to; by default derived from the request",
    "TIDEMILL_WIRE": "address of the broker between hubs and hands; see [hubs](../howto/hubs.md)",
    "TIDEMILL_STORE_FILE": "file that contains the value of `TIDEMILL_STORE`",
    "TIDEMILL_WORKER_THREADS": "the option `--threads` of `tidemill worker`; options of other commands have such a variable, too",
}

EXAMPLES = {"TIDEMILL_NAME", "TIDEMILL_NAME_FILE", "TIDEMILL_WORKER_THREADS_FILE"}
"""Names in explanations of the rules above, which are not variables of their own."""

_COMMENT = re.compile(r"^\s*#: ?(.*)$")
_FIELD = re.compile(r"^    (\w+): [^#]*?(?:#: ?(.*))?$")


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_app(), *_task(), *_worker(), *_api(), *_run_time(), *_environment()])


def _app() -> Iterator[str]:
    yield "## App\n\nArguments of `App(…)`:\n"
    yield (
        table(("name", "meaning"), [(code(n), text) for n, text in (APP_CALL | APP_SETTINGS).items()]) + "\n"
    )


def _task() -> Iterator[str]:
    yield "## Task\n\nOptions of `@app.task(…)` and of task classes:\n"
    fields = {field.name: default(field) for field in dataclasses.fields(TaskOptions)}
    yield (
        table(
            ("name", "default", "meaning"), [(code(n), fields[n], text) for n, text in TASK_OPTIONS.items()]
        )
        + "\n"
    )


def _worker() -> Iterator[str]:
    yield (
        "## Worker\n\n"
        "`tidemill worker` has an option for the common ones (`--max-jobs` for `max_jobs`); "
        "`app.worker(…)` takes them as arguments, with durations in seconds.\n"
        "`max_jobs`, `max_age` and `max_memory` need the runner processes of `tidemill worker`: a worker inside your process refuses them.\n"
    )
    yield _fields(WorkerSettings)


def _api() -> Iterator[str]:
    yield "## HTTP API and dashboard\n\nFields of `tidemill.rest.ApiSettings`:\n"
    yield _fields(ApiSettings)


def _run_time() -> Iterator[str]:
    yield (
        "## Run-time settings\n\n"
        "The store keeps these for all processes.\n"
        "Change them with `tidemill config set KEY VALUE`, `app.control.set(key, value)`, `PUT /api/worker/config` or the dashboard.\n"
        "Workers read them every few seconds; every change is in the audit log.\n"
    )
    known = [(code(key), kind.__name__, text) for key, (kind, text) in KNOWN_SETTINGS.items()]
    prefixed = [(code(key), *text.split(": ", 1)) for key, text in PREFIXED.items()]
    yield table(("key", "type", "meaning"), [*known, *prefixed]) + "\n"
    yield "The thresholds of [alerts](../operations.md#alerts) are settings too:\n"
    texts = comments(Thresholds)
    rows = [
        (code(f"alerts.{field.name}"), default(field), texts.get(field.name, ""))
        for field in dataclasses.fields(Thresholds)
    ]
    yield table(("key", "default", "meaning"), rows) + "\n"


def _environment() -> Iterator[str]:
    yield "## Environment variables\n"
    yield table(("variable", "meaning"), [(code(name), text) for name, text in ENVIRONMENT.items()]) + "\n"
    yield "The commands also respect `NO_COLOR` and `COLUMNS`."
    yield ""


def _fields(owner: type) -> str:
    texts = comments(owner)
    rows = [(code(f.name), default(f), texts.get(f.name, "")) for f in dataclasses.fields(owner)]
    return table(("name", "default", "meaning"), rows) + "\n"


def default(field: dataclasses.Field[object]) -> str:
    """The default of a field in words."""
    value = field.default if field.default is not dataclasses.MISSING else None
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if value is None or value in ((), {}):
        return "–"
    if isinstance(value, Enum):
        value = value.value
    return code(repr(value) if len(repr(value)) < 40 else type(value).__name__ + "(…)")


def comments(owner: type) -> dict[str, str]:
    """The ``#:`` comments of a dataclass by field: at the end of the line, or on the lines before it."""
    found: dict[str, str] = {}
    before: list[str] = []
    for line in inspect.getsource(owner).splitlines():
        if alone := _COMMENT.match(line):
            before.append(alone[1])
        elif field := _FIELD.match(line):
            text = field[2] or " ".join(before)
            if text:
                found[field[1]] = text.replace("``", "`")
            before = []
    return found


def undocumented() -> list[str]:
    """Settings without a description, and variables that the code does not read or the page does not list."""
    missing = [
        f"{owner.__name__}.{field.name}"
        for owner in (WorkerSettings, ApiSettings, Thresholds)
        for field in dataclasses.fields(owner)
        if field.name not in comments(owner)
    ]
    read = set[str]()
    for path in Path(tidemill.__file__).parent.rglob("*.py"):
        read |= set(re.findall(r"\bTIDEMILL_[A-Z][A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    return missing + sorted((read - EXAMPLES) ^ set(ENVIRONMENT))
