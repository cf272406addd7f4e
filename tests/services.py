"""The skip or failure of a test whose service is missing."""

from __future__ import annotations

import os
import re
from typing import NoReturn

import pytest

MISSING = re.compile(r"service missing: ([\w-]+): (.*)", re.DOTALL)


def go_without(service: str, why: Exception) -> NoReturn:
    """Skip the test, or fail it with TIDEMILL_TEST_ALL=1. The table at the end of the run repeats the reason."""
    text = f"service missing: {service}: {why}"
    if os.environ.get("TIDEMILL_TEST_ALL") == "1":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
