"""Statistics, named reports, alerts and metrics for operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import Field, create_model
from starlette.responses import Response

from tidemill.client.error_groups import ErrorGroup
from tidemill.client.stats.api import NAMED, StatsApi
from tidemill.client.stats.reports import Report, document
from tidemill.domain.access import Role
from tidemill.domain.alerts import Alert
from tidemill.domain.prometheus import CONTENT_TYPE, OPENMETRICS, OPENMETRICS_TYPE
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.errors import ErrorGroupDocument
from tidemill.rest.models import MOST, Document, Instant, Items, Name, QueryModel, Seconds
from tidemill.rest.routes import Routes
from tidemill.web.routes import Handler

routes = Routes("operations")

FOR_ALL = frozenset({"active_workers", "archival", "depth_history", "leaders"})
"""Reports that belong to no tenant."""

_DAYS = 31 * 86400

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "window": (
        Seconds | None,
        Field(
            None,
            gt=0,
            le=_DAYS,
            description="Length of the time window in seconds; the default depends on the report.",
        ),
    ),
    "longer_than": (
        Seconds | None,
        Field(None, description="Only include jobs that took longer than this many seconds."),
    ),
    "limit": (int | None, Field(None, ge=1, le=MOST, description=f"Maximum number of rows, up to {MOST}.")),
}


class ThroughputQuery(QueryModel):
    """Time window of the report."""

    window: Literal["1h", "24h", "7d"] = "1h"
    queue: Name | None = Field(None, description="Only jobs of this queue.")
    task: Name | None = Field(None, description="Only jobs of this task.")


class DepthHistoryQuery(QueryModel):
    """Time window of the report, and its queues."""

    window: Literal["1h", "24h", "7d"] = "1h"
    queue: Name | None = Field(None, description="Only this queue; default: the deepest ones.")
    limit: int = Field(20, ge=1, le=200, description="Maximum number of queues.")


class WindowQuery(QueryModel):
    """Time window."""

    window: Seconds | None = Field(
        None, gt=0, le=_DAYS, description="Length of the time window in seconds; default: one hour."
    )


def query_of(name: str) -> type[QueryModel]:
    """Create the query model of a named report from the report's own parameters."""
    if name == "throughput":
        return ThroughputQuery
    if name == "depth_history":
        return DepthHistoryQuery
    takes = inspect.signature(getattr(StatsApi, name)).parameters
    options: dict[str, Any] = {option: field for option, field in _OPTIONS.items() if option in takes}
    return create_model(f"{_title(name)}Query", __base__=QueryModel, **options)


def document_of(kind: type[Any]) -> type[Document]:
    """Create the response model for a report class: instants as strings, durations as seconds."""
    fields: dict[str, Any] = {name: (_shown(hint), ...) for name, hint in get_type_hints(kind).items()}
    return create_model(f"{kind.__name__}Document", __base__=Document, __doc__=inspect.getdoc(kind), **fields)


def answer_of(name: str) -> type[Document]:
    """Create the response model of a named report."""
    returned = get_type_hints(getattr(StatsApi, name))["return"]
    if get_origin(returned) is not Report:
        return document_of(returned)
    (row,) = get_args(returned)
    rows: Any = list[_ROWS.setdefault(row, document_of(row))]  # type: ignore[misc]
    return create_model(
        f"{_title(name)}Report",
        __base__=Document,
        __doc__=inspect.getdoc(Report),
        at=(Instant, ...),
        rows=(rows, ...),
        since_at=(Instant | None, ...),
        sampled=(bool, ...),
        missing=(list[str], ...),
    )


_ROWS: dict[Any, type[Document]] = {ErrorGroup: ErrorGroupDocument}
_PLAIN = {datetime: Instant, timedelta: float, UUID: UUID}


def _shown(hint: Any) -> Any:
    """Map a Python type to its JSON type."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint in (int, float, str, bool, type(None)):
        return hint
    parts = get_args(hint)
    if type(None) in parts:
        (part,) = (other for other in parts if other is not type(None))
        return _shown(part) | None
    return hint if parts else str


def _title(name: str) -> str:
    return name.title().replace("_", "")


def _handler(name: str) -> Handler:
    """Create the route of a named report, with the report's docstring."""

    async def answer(request: ApiRequest) -> Response:
        how: dict[str, Any] = {} if name in FOR_ALL else {"tenant": request.tenant}
        for option, value in request.query:
            if option != "tenant" and value is not None:
                how[option] = timedelta(seconds=value) if isinstance(value, float) else value
        report: Callable[..., Any] = getattr(request.app.stats, name)
        shown = document(await request.read(report, **how))
        if "rows" in shown:
            shown["rows"] = request.failure_rows(shown["rows"])
        return request.reply(shown)

    answer.__name__ = f"stats_{name}"
    answer.__doc__ = inspect.getdoc(getattr(StatsApi, name))
    return answer


for _name in NAMED:
    routes.get(
        f"/api/stats/{_name}",
        role=Role.VIEWER,
        query=query_of(_name),
        answer=answer_of(_name),
        everywhere=_name in FOR_ALL,
    )(_handler(_name))


@routes.get("/api/stats", role=Role.VIEWER, query=WindowQuery, answer=answer_of("overview"))
async def stats(request: ApiRequest) -> Response:
    """Overview: waiting and running jobs, workers, and jobs that ended within the window."""
    overview = await request.read(request.app.stats.overview, **_window(request), tenant=request.tenant)
    return request.reply(document(overview))


_ALERTS: Any = Items[document_of(Alert)]  # type: ignore[misc]


@routes.get("/api/alerts", role=Role.VIEWER, query=WindowQuery, answer=_ALERTS, everywhere=True)
async def alerts(request: ApiRequest) -> Response:
    """List active alerts, critical first. The settings `alerts.…` define the thresholds."""
    raised = await request.read(request.app.stats.alerts, **_window(request), tenant=request.tenant)
    return request.page(document(raised))


@routes.get("/metrics", role=Role.VIEWER, media=CONTENT_TYPE.partition(";")[0], answer=str, everywhere=True)
async def metrics(request: ApiRequest) -> Response:
    """Metrics of the store in the Prometheus text format, or in that of OpenMetrics if the client accepts it; at most 5 s old."""
    openmetrics = OPENMETRICS in request.headers.get("accept", "")
    text = await request.read(request.app.stats.metrics, openmetrics=openmetrics)
    kind = OPENMETRICS_TYPE if openmetrics else CONTENT_TYPE
    return Response(text, media_type=kind, headers={"vary": "accept"})


def _window(request: ApiRequest) -> dict[str, Any]:
    return {} if request.query.window is None else {"window": timedelta(seconds=request.query.window)}
