"""Errors as RFC 9457 problem documents.

Details of store errors go to the log only. Callers receive messages they can act on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from tidemill import errors
from tidemill.domain.job_requests import REFUSED

_log = logging.getLogger("tidemill.rest")

MEDIA = "application/problem+json"

STATUSES: dict[type[errors.TidemillError], int] = {
    errors.TaskNotFound: 404,
    errors.JobNotFound: 404,
    errors.ScheduleNotFound: 404,
    errors.DefinitionNotFound: 404,
    errors.KeyNotFound: 404,
    errors.WorkerNotFound: 404,
    errors.LeaseNotFound: 404,
    errors.LimitNotFound: 404,
    errors.QueueFull: 429,
    errors.AlertNotFound: 404,
    errors.ErrorGroupNotFound: 404,
    errors.SubscriptionNotFound: 404,
    errors.DuplicateTask: 409,
    errors.JobExists: 409,
    errors.ScheduleExists: 409,
    errors.DefinitionExists: 409,
    errors.DefinitionDisabled: 409,
    errors.DefinitionBusy: 409,
    errors.SchedulePaused: 409,
    errors.ArchiveRunning: 409,
    errors.TenantMoving: 409,
    errors.LeaseHeld: 409,
    errors.IllegalTransition: 409,
    errors.LeaseLost: 409,
    errors.PayloadTooLarge: 413,
    errors.TooManySignals: 429,
    errors.WaitTimeout: 504,
    errors.StoreCorrupt: 500,
    errors.StoreError: 503,
    errors.UsageError: 422,
    errors.JobError: 409,
}
"""HTTP status per error class. Other classes use that of their nearest base class."""

NO_NUL = "the text contains a NUL character, which cannot be stored"

CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "payload_too_large",
    414: "url_too_long",
    415: "unsupported_media_type",
    421: "unknown_host",
    422: "invalid_request",
    429: "too_many_requests",
    431: "headers_too_large",
    500: "internal_error",
    503: "unavailable",
}

TITLES = {
    401: "Authentication required.",
    403: "Permission denied.",
    404: "Not found.",
    405: "Method not allowed.",
    413: "The body is too large.",
    415: "Unsupported media type.",
    422: "The request is invalid.",
    429: "Too many requests.",
    500: "Internal server error.",
    503: "Temporarily unavailable.",
}


class Problem(Exception):
    """An error for the caller, with its HTTP status and a stable code."""

    def __init__(
        self,
        status: int,
        code: str | None,
        detail: str,
        *,
        title: str | None = None,
        headers: Mapping[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code or CODES.get(status, "error")
        self.detail = detail
        self.title = title or TITLES.get(status) or self.code.replace("_", " ").capitalize() + "."
        self.headers = dict(headers or {})
        self.extra = extra

    def response(self, instance: str) -> Response:
        """Return the problem document. ``instance`` identifies the request in the log."""
        document = {
            "type": f"urn:tidemill:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "instance": instance,
            **self.extra,
        }
        return Response(to_json(document, fallback=str), self.status, self.headers, MEDIA)


def problem_of(error: Exception, instance: str) -> Problem:
    """Convert any error to a problem for the caller."""
    match error:
        case Problem():
            return error
        case errors.TidemillError():
            return _of_ours(error, instance)
        case HTTPException():
            return Problem(error.status_code, None, str(error.detail), headers=error.headers)
        case ClientDisconnect():
            return Problem(400, "client_gone", "the client disconnected before the request was complete")
        case _:
            _log.error("request %s failed", instance, exc_info=error)
            return Problem(500, None, f"the request failed; see {instance} in the server's log")


def _of_ours(error: errors.TidemillError, instance: str) -> Problem:
    kind = next(kind for kind in type(error).__mro__ if kind in STATUSES or kind is errors.TidemillError)
    status = STATUSES.get(kind, 500)
    title = (type(error).__doc__ or "").strip().partition("\n")[0]
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    if status < 500:
        extra: dict[str, Any] = {
            name: error.details[name] for name in ("errors", "field") if name in error.details
        }
        return Problem(status, error.code, error.message, title=title, headers=headers, **extra)
    # The message may contain hosts, files or SQL, so it is only for the operators of this server.
    _log.error("request %s: %s: %s", instance, error.code, error.message)
    return Problem(
        status, error.code, f"{title} See {instance} in the server's log.", title=title, headers=headers
    )


def of_validation(error: ValidationError, where: str) -> Problem:
    """Report what is wrong with a query or a body, by field. Input values are omitted: they may be secrets."""
    faults = [
        {"field": ".".join(str(part) for part in fault["loc"]) or where, "message": _message(fault)}
        for fault in error.errors(include_url=False, include_input=False, include_context=False)[:50]
    ]
    first = "; ".join(f"{fault['field']}: {fault['message']}" for fault in faults[:3])
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return Problem(422, None, f"the {where} is invalid: {first}{more}", errors=faults)


def _message(fault: ErrorDetails) -> str:
    """Describe what is wrong with one field; for a removed field, what to use instead."""
    if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
        return REFUSED.get(str(fault["loc"][0]), fault["msg"])
    return fault["msg"]
