"""Number of Python calls that one HTTP request takes."""

from __future__ import annotations

import asyncio
import sys

import pytest
from bench.http_calls import count

MOST = {"POST /api/jobs": 130, "GET /api/jobs/{id}": 95}


@pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or coverage replaces the profiler")
def test_a_request_takes_few_python_calls() -> None:
    totals = {name: calls.total for name, calls in asyncio.run(count()).items()}
    assert totals.keys() == MOST.keys()
    for name, total in totals.items():
        assert total <= MOST[name], f"{name} takes {total} calls; see python3 dev.py bench http_calls --list"
