"""The pytest plugin: a fixture with an application of its own for every test. pytest finds it by itself.

It must import as little as it can before a test asks for the fixture: every pytest run loads this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidemill.app import App


@pytest.fixture
def tidemill_app() -> Iterator[App]:
    """An app in memory, on a clock that stands still; ``tidemill_app.testing()`` runs its jobs."""
    from tidemill.app import App
    from tidemill.clock import ManualClock

    app = App(clock=ManualClock())
    yield app
    app.close()
