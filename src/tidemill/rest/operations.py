"""What operators ask: an overview, the named questions, alerts, and metrics for a scraper."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import Field, create_model
from starlette.responses import Response

from tidemill.client.operations import NAMED, Operations
from tidemill.client.reports import Report, document
from tidemill.domain.access import Role
from tidemill.domain.alerts import Alert
from tidemill.domain.exposition import CONTENT_TYPE
from tidemill.rest.call import Call
from tidemill.rest.models import MOST, Document, Instant, Items, Query, Seconds
from tidemill.rest.routes import Handler, Routes

routes = Routes("operations")

FOR_ALL = frozenset({"active_workers", "archival", "leaders"})
"""Questions whose answers belong to no tenant."""

_DAYS = 31 * 86400

_OPTIONS: dict[str, tuple[Any, Any]] = {
    "window": (
        Seconds | None,
        Field(None, gt=0, le=_DAYS, description="Seconds to look back; the question's own unless given."),
    ),
    "longer_than": (Seconds | None, Field(None, description="Seconds: only what took longer.")),
    "limit": (int | None, Field(None, ge=1, le=MOST, description=f"The most rows, up to {MOST}.")),
}


class ThroughputQuery(Query):
    """Which window, and in what steps."""

    window: Literal["1h", "24h", "7d"] = "1h"


class WindowQuery(Query):
    """How far back."""

    window: Seconds | None = Field(
        None, gt=0, le=_DAYS, description="Seconds to look back; an hour unless given."
    )


def query_of(name: str) -> type[Query]:
    """The query of a named question: what the question itself takes."""
    if name == "throughput":
        return ThroughputQuery
    takes = inspect.signature(getattr(Operations, name)).parameters
    options: dict[str, Any] = {option: said for option, said in _OPTIONS.items() if option in takes}
    return create_model(f"{_title(name)}Query", __base__=Query, **options)


def document_of(kind: type[Any]) -> type[Document]:
    """The document an answer of this class becomes: instants as texts, durations as seconds."""
    fields: dict[str, Any] = {name: (_shown(said), ...) for name, said in get_type_hints(kind).items()}
    return create_model(f"{kind.__name__}Document", __base__=Document, __doc__=inspect.getdoc(kind), **fields)


def answer_of(name: str) -> type[Document]:
    """The document of a named question's answer."""
    said = get_type_hints(getattr(Operations, name))["return"]
    if get_origin(said) is not Report:
        return document_of(said)
    (row,) = get_args(said)
    rows: Any = list[_ROWS.setdefault(row, document_of(row))]  # type: ignore[misc]
    return create_model(
        f"{_title(name)}Report",
        __base__=Document,
        __doc__=inspect.getdoc(Report),
        at=(Instant, ...),
        rows=(rows, ...),
        since_at=(Instant | None, ...),
        sampled=(bool, ...),
    )


_ROWS: dict[Any, type[Document]] = {}
_PLAIN = {datetime: Instant, timedelta: float, UUID: UUID}


def _shown(said: Any) -> Any:
    """A type of Python's as it goes over the wire."""
    if said in _PLAIN:
        return _PLAIN[said]
    if said in (int, float, str, bool, type(None)):
        return said
    parts = get_args(said)
    if type(None) in parts:
        (part,) = (each for each in parts if each is not type(None))
        return _shown(part) | None
    return said if parts else str


def _title(name: str) -> str:
    return name.title().replace("_", "")


def _handler(name: str) -> Handler:
    """The route of a named question, with the question's own words."""

    async def answer(call: Call) -> Response:
        how: dict[str, Any] = {} if name in FOR_ALL else {"tenant": call.tenant}
        for option, value in call.query:
            if option != "tenant" and value is not None:
                how[option] = timedelta(seconds=value) if isinstance(value, float) else value
        found: Callable[..., Any] = getattr(call.app.stats, name)
        return call.reply(document(await call.read(found, **how)))

    answer.__name__ = f"stats_{name}"
    answer.__doc__ = inspect.getdoc(getattr(Operations, name))
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
async def stats(call: Call) -> Response:
    """One look: what waits and runs, who works, and what ended within the window."""
    found = await call.read(call.app.stats.overview, **_window(call), tenant=call.tenant)
    return call.reply(document(found))


_ALERTS: Any = Items[document_of(Alert)]  # type: ignore[misc]


@routes.get("/api/alerts", role=Role.VIEWER, query=WindowQuery, answer=_ALERTS, everywhere=True)
async def alerts(call: Call) -> Response:
    """What is beyond its threshold, the critical first; thresholds are the settings `alerts.…`."""
    found = await call.read(call.app.stats.alerts, **_window(call), tenant=call.tenant)
    return call.page(document(found))


@routes.get("/metrics", role=Role.VIEWER, media=CONTENT_TYPE.partition(";")[0], answer=str, everywhere=True)
async def metrics(call: Call) -> Response:
    """The store in numbers, as Prometheus reads them; at most five seconds old."""
    return Response(await call.read(call.app.stats.metrics), media_type=CONTENT_TYPE)


def _window(call: Call) -> dict[str, Any]:
    return {} if call.query.window is None else {"window": timedelta(seconds=call.query.window)}
