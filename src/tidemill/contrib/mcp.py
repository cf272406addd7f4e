"""A Model Context Protocol server: tools that read and, on request, change an app's jobs."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic_core import to_jsonable_python

from tidemill.app import App
from tidemill.client.access import acting
from tidemill.client.documents import execution_document, job_document, log_document
from tidemill.client.jobs.handle import Job
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.masks import masked
from tidemill.domain.permissions import decide
from tidemill.domain.records import PauseKind
from tidemill.errors import TidemillError, UsageError

__all__ = ["READING", "WRITING", "create_server"]

READING = ("overview", "alerts", "list_jobs", "job", "why", "errors", "logs")
"""Tools of every server."""

WRITING = ("retry", "cancel", "approve", "pause", "resume", "trigger")
"""Further tools of a server that may act."""

_ACTS = {
    "overview": "stats.read",
    "alerts": "metrics.read",
    "list_jobs": "jobs.read",
    "job": "jobs.read",
    "why": "jobs.read",
    "errors": "stats.read",
    "logs": "jobs.logs",
    "retry": "jobs.retry",
    "cancel": "jobs.cancel",
    "approve": "jobs.review",
    "pause": "queues.pause",
    "resume": "queues.pause",
    "trigger": "schedules.run",
}
"""The act that the key must allow, for each tool."""

_PAUSABLE = (PauseKind.QUEUE.value, PauseKind.TASK.value)

_MOST = 100
_LINES = 500
T = TypeVar("T")


def create_server(app: App, *, key: str | None = None, act: bool = False) -> MCPServer[Any]:
    """Return a server for this app; ``create_server(app).run()`` serves standard input and output.

    With an API key, its role and tenant apply; without one, the tools read the app's own tenant as a viewer. Tools that
    change something are offered only with ``act`` and the key of an operator; the audit names ``mcp:`` and the key. A key
    with grants, roles by tenant or an environment is refused, because the tools do not apply them.
    """
    tools = _Tools(app, _identity(app, key))
    if act and key is None:
        raise UsageError("tools that change jobs need an API key; set TIDEMILL_KEY")
    if act and not tools.identity.role.allows(Role.OPERATOR):
        raise UsageError(f"the key has the role {tools.identity.role}; tools that change jobs need operator")
    server: MCPServer[Any] = MCPServer(
        "tidemill",
        instructions="Background jobs of a Tidemill app. Ask `overview` and `alerts` first, and `why` for one job.",
        version=sys.modules["tidemill"].__version__,
    )
    for name in READING + (WRITING if act else ()):
        is_reading = name in READING
        destroys = None if is_reading else name == "cancel"
        hints = ToolAnnotations(read_only_hint=is_reading, destructive_hint=destroys)
        server.tool(name=name, annotations=hints)(_safe(tools.allowed(name)))
    server.resource("tidemill://job/{id}", mime_type="application/json")(_safe(tools.job))
    return server


def _identity(app: App, key: str | None) -> Identity:
    if key is None:
        return Identity("mcp", Role.VIEWER, "")  # the tenant of the app
    identity = app.keys.identify(key)
    if identity is None:
        raise UsageError("the API key is unknown, expired or revoked")
    _refuse_restricted(identity)
    return identity._replace(who=f"mcp:{identity.who}")


def _refuse_restricted(identity: Identity) -> None:
    """Refuse a key with restrictions that the tools do not apply, because they would exceed its permissions."""
    restrictions = {
        "grants": identity.grants,
        "roles by tenant": identity.roles,
        "an environment": identity.environment,
    }
    present = [name for name, value in restrictions.items() if value]
    if present:
        raise UsageError(
            f"the key {identity.who} has {' and '.join(present)}, which MCP tools do not apply; use a key without them"
        )


def _check_kind(kind: str) -> None:
    """Refuse other kinds of pauses, which need other permissions."""
    if kind not in _PAUSABLE:
        raise UsageError(f"the kind is {kind!r}; give {' or '.join(_PAUSABLE)}")


def _safe(tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Turn errors of Tidemill into errors that the protocol shows with their message."""

    @functools.wraps(tool)
    async def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return await tool(*args, **kwargs)
        except TidemillError as error:
            raise ToolError(f"{error.code}: {error}") from error

    return called


class _Tools:
    """The tools. Their names, parameters and docstrings are what a client sees."""

    def __init__(self, app: App, identity: Identity) -> None:
        self._app, self.identity = app, identity
        self._tenant = identity.tenant or None

    async def overview(self) -> Any:
        """Counts by status, depth, workers, throughput and success rate of the last hour."""
        return self._plain(await self._app.stats.aoverview(tenant=self._tenant))

    async def alerts(self) -> list[Any]:
        """Active alerts, such as dead workers, late schedules and growing queues."""
        alerts = await self._app.stats.aalerts(tenant=self._tenant)
        return [self._plain(alert) for alert in alerts]

    async def list_jobs(
        self, status: str | None = None, task: str | None = None, queue: str | None = None, limit: int = 20
    ) -> list[dict[str, Any]]:
        """The newest jobs, by status (pending, running, failed, dead_lettered, completed, …), task or queue."""
        where = {
            name: value for name, value in (("status", status), ("task", task), ("queue", queue)) if value
        }
        page = await self._app.jobs.alist(limit=max(1, min(limit, _MOST)), tenant=self._tenant, **where)
        return [self._document(job) for job in page.items]

    async def job(self, id: str) -> dict[str, Any]:
        """One job with its arguments, error and executions."""
        job = await self._job(id)
        executions = [self._plain(execution_document(one)) for one in await job.aexecutions()]
        return {**self._document(job), "executions": executions}

    async def why(self, id: str) -> list[dict[str, str]]:
        """Why a job is not running, or how it ended; the most important reason first."""
        job = await self._job(id)
        return [{"code": reason.code, "text": reason.text} for reason in await job.awhy()]

    async def errors(self, window: str = "1d") -> list[Any]:
        """Failures grouped by task, error type and message; most frequent first. The window is such as 1h or 7d."""
        report = await self._app.stats.aerrors(window, tenant=self._tenant)
        return [self._plain(group) for group in report.rows]

    async def logs(self, id: str) -> list[Any]:
        """The last lines of a job's log."""
        job = await self._job(id)
        return [self._plain(log_document(line)) for line in (await job.alogs())[-_LINES:]]

    def allowed(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Return a tool that first checks the act which the key must allow."""
        tool: Callable[..., Awaitable[Any]] = getattr(self, name)

        @functools.wraps(tool)
        async def checked(*args: Any, **kwargs: Any) -> Any:
            # Without a key, the caller has the store itself.
            if self.identity.tenant:
                verdict = decide(self.identity, _ACTS[name], None, self._app.environment)
                if not verdict.allowed:
                    raise UsageError(f"{_ACTS[name]} is refused: {verdict.reason}")
            return await tool(*args, **kwargs)

        return checked

    # Changes ---------------------------------------------------------------------------------------------------------

    async def retry(self, id: str) -> dict[str, Any]:
        """Run a failed, dead-lettered or cancelled job again."""
        job = await self._job(id)
        return self._document(await self._act(job.retry))

    async def cancel(self, id: str, reason: str) -> dict[str, Any]:
        """Cancel a job; a running one is asked to stop."""
        job = await self._job(id)
        return self._document(await self._act(lambda: job.cancel(reason)))

    async def approve(self, id: str, comment: str | None = None) -> dict[str, Any]:
        """Approve a job that waits for review: its output becomes its result."""
        job = await self._job(id)
        return self._document(await self._act(lambda: job.approve(comment)))

    async def pause(self, kind: str, name: str, reason: str | None = None) -> Any:
        """Pause a queue or a task (kind: queue or task); waiting jobs stay."""
        _check_kind(kind)
        return self._plain(await self._act(lambda: self._app.control.pause(kind, name, reason=reason)))

    async def resume(self, kind: str, name: str) -> bool:
        """Resume a paused queue or task; false if it was not paused."""
        _check_kind(kind)
        return await self._act(lambda: self._app.control.resume(kind, name)) is not None

    async def trigger(self, schedule: str) -> dict[str, Any]:
        """Enqueue the job of a schedule now."""
        tenant = None if self._tenant == ALL_TENANTS else self._tenant
        return self._document(await self._act(lambda: self._app.schedules.trigger(schedule, tenant=tenant)))

    # Parts -----------------------------------------------------------------------------------------------------------

    async def _job(self, id: str) -> Job[Any]:
        return await self._app.jobs.aget(id, tenant=self._tenant)

    async def _act(self, change: Callable[[], T]) -> T:
        def change_as_key() -> T:
            with acting(self.identity.who):
                return change()

        return await asyncio.to_thread(change_as_key)

    def _document(self, job: Job[Any]) -> dict[str, Any]:
        document: dict[str, Any] = self._plain(job_document(job.row, self._app.clock.now()))
        return document

    def _plain(self, value: Any) -> Any:
        """Return a value as JSON, with secrets masked for viewers, as the HTTP API does."""
        plain = to_jsonable_python(value, fallback=str)
        return plain if self.identity.role.allows(Role.OPERATOR) else masked(plain)
