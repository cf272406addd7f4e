"""Schemathesis hooks that count all and distinct requests per operation.

``SCHEMATHESIS_HOOKS`` names this file.
At exit the hooks write the counts as JSON to the file named in ``TIDEMILL_COUNTS``.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import schemathesis

FILE = "TIDEMILL_COUNTS"


class Count:
    """The requests of one operation."""

    def __init__(self) -> None:
        self.cases = 0
        self.seconds = 0.0
        self.statuses: dict[str, int] = {}
        self.distinct: set[str] = set()

    def add(self, request: Any, seconds: float, status: int) -> None:
        """Count one response."""
        self.cases += 1
        self.seconds += seconds
        self.statuses[str(status)] = self.statuses.get(str(status), 0) + 1
        body = request.body or b""
        given = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
        headers = {k: v for k, v in request.headers.items() if k.lower() != "x-schemathesis-testcaseid"}
        said = f"{request.method} {request.url} {sorted(headers.items())}"
        self.distinct.add(
            hashlib.sha256(said.encode("utf-8", "surrogatepass") + b"\0" + given).hexdigest()[:16]
        )

    def data(self) -> dict[str, Any]:
        """The counts as JSON data."""
        return {
            "cases": self.cases,
            "seconds": self.seconds,
            "statuses": self.statuses,
            "distinct": sorted(self.distinct),
        }


_lock = threading.Lock()
_counts: dict[str, Count] = {}


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Count the response of a call."""
    with _lock:
        count = _counts.setdefault(case.operation.label, Count())
        count.add(response.request, float(response.elapsed), int(response.status_code))


@atexit.register
def _write() -> None:
    if name := os.environ.get(FILE):
        with _lock:
            found = {label: count.data() for label, count in _counts.items()}
        Path(name).write_text(json.dumps(found), encoding="utf-8")
