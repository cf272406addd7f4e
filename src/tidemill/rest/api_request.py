"""API request: a ``WebRequest`` with a validated query and body, and JSON responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from tidemill.domain.access import Identity
from tidemill.web.request import WebRequest
from tidemill.web.responses import JsonResponse, encode
from tidemill.web.service import Service

if TYPE_CHECKING:
    from tidemill.rest.models import BodyModel, NoQuery
    from tidemill.rest.routes import ApiOperation


class ApiRequest(WebRequest):
    """The request that a route's coroutine receives."""

    __slots__ = ("body", "query")

    def __init__(
        self,
        service: Service,
        operation: ApiOperation,
        request: Request,
        identity: Identity,
        query: NoQuery,
        body: BodyModel | None,
    ) -> None:
        super().__init__(service, operation, request, identity, getattr(query, "tenant", None))
        self.query: Any = query
        self.body: Any = body

    def reply(
        self, document: Any, status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Respond with one document."""
        return JsonResponse(encode(document), status or self.operation.status, headers)

    def page(self, items: Sequence[Any], following: str | None = None) -> Response:
        """Respond with a list of documents and the cursor of the next page."""
        return self.reply({"items": items, "next": following})

    def encoded(self, document: bytes) -> Response:
        """Respond with a document that is already encoded."""
        return JsonResponse(document, self.operation.status)

    def empty(self, status: int = 204) -> Response:
        """Respond without content."""
        return Response(None, status)
