"""Confirmation page for actions that are wide-ranging or cannot be undone."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from tidemill.dashboard.form_state import refuse_to_look
from tidemill.dashboard.page_request import PageRequest


def ask(
    request: PageRequest,
    title: str,
    words: str,
    *,
    button: str,
    action: str,
    back: str,
    fields: Mapping[str, str] | None = None,
    also: str | None = None,
    reason: bool = False,
) -> Response:
    """Render a confirmation page whose form posts to the path ``action``. ``reason`` adds a field for the reason."""
    refuse_to_look(request)
    return request.render(
        "ask_first.html",
        title=title,
        words=words,
        button=button,
        action=request.url(action),
        back=request.url(back),
        fields=dict(fields or {}),
        also=also,
        reason=reason,
    )
