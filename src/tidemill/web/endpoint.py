"""ASGI endpoint of one path with all its methods."""

from __future__ import annotations

from typing import Generic

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.shards.absence import noting_missing
from tidemill.web.guard import Refusal
from tidemill.web.problems import Problem, problem_of
from tidemill.web.routes import O
from tidemill.web.service import Service


class Endpoint(Generic[O]):
    """Finds the operation of a request, responds to it, and converts every error to a response."""

    def __init__(self, service: Service, operations: dict[str, O]) -> None:
        self.service, self.operations = service, operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            method = scope["method"]
            operation = self.operations.get("GET" if method == "HEAD" else method)
            if operation is None:
                raise self._not_allowed(method)
            if self.service.client.placement.shards is None:
                response = await self.respond(operation, request)
            else:
                response = await self._respond_from_shards(operation, request)
        except Exception as error:  # noqa: BLE001  (problem_of logs unexpected errors)
            if isinstance(error, Refusal):
                await self.service.note_refusal(error)
            response = await self.refuse(request, error)
        await response(scope, receive, send)

    async def _respond_from_shards(self, operation: O, request: Request) -> Response:
        """Respond, and name the shards that did not answer."""
        with noting_missing() as missing:
            response = await self.respond(operation, request)
        if missing:
            response.headers["tidemill-missing"] = ", ".join(sorted(missing))
        return response

    async def respond(self, operation: O, request: Request) -> Response:
        """Authorise the request and run the operation."""
        raise NotImplementedError

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Return the response to an error, by default a problem document."""
        instance: str = request.scope["tidemill.correlation"]
        return problem_of(error, instance).response(instance)

    def _not_allowed(self, method: str) -> Problem:
        allowed = ", ".join(sorted(self.operations))
        return Problem(
            405, None, f"{method[:20]} is not allowed here; allowed: {allowed}", headers={"allow": allowed}
        )
