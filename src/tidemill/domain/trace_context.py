"""The W3C trace context of a job, kept in its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

MOST_STATE = 512
"""Characters of ``tracestate`` that are kept: the minimum of the standard."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.{0,200})?")


def trace_id(headers: Mapping[str, str]) -> str | None:
    """The trace id of these headers; None without a valid ``traceparent``.

    >>> trace_id({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
    '4bf92f3577b34da6a3ce929d0e0e4736'
    """
    found = _FORM.fullmatch(headers.get(TRACEPARENT, ""))
    if found is None:
        return None
    version, trace, parent, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return None
    return trace if trace.strip("0") and parent.strip("0") else None


def trace_headers(parent: str | None, state: str | None) -> dict[str, str]:
    """What to keep of the two headers of a request. The standard says to ignore an invalid ``traceparent``."""
    if parent is None or trace_id({TRACEPARENT: parent}) is None:
        return {}
    kept = {TRACEPARENT: parent}
    if state and len(state) <= MOST_STATE:
        kept[TRACESTATE] = state
    return kept
