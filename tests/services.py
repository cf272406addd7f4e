"""What is said when a service that a test needs is missing: a loud skip, or a failure when everything was asked for."""

from __future__ import annotations

import os
import re
from typing import NoReturn

import pytest

MISSING = re.compile(r"service missing: ([\w-]+): (.*)", re.DOTALL)


def go_without(service: str, why: Exception) -> NoReturn:
    """End the test that needs it; the table at the end of the run repeats why."""
    text = f"service missing: {service}: {why}"
    if os.environ.get("TIDEMILL_TEST_ALL") == "1":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
