"""The pytest plugin: the app under test, isolated for every test.

Every pytest run loads this file, so it imports as little as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from tidemill.app import App


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the settings of the plugin."""
    parser.addini(
        "tidemill_app",
        "the Tidemill app under test, as module:attribute; every test gets it with an empty store in memory and a manual clock",
        default="",
    )


@pytest.fixture(autouse=True)
def _tidemill_isolated(pytestconfig: pytest.Config) -> Iterator[None]:
    """Give the configured app an empty store in memory and a manual clock for this test."""
    if not pytestconfig.getini("tidemill_app"):
        yield
        return
    from tidemill.clock import ManualClock

    with _configured(pytestconfig).override("memory://", clock=ManualClock()):
        yield


@pytest.fixture
def tidemill_app(pytestconfig: pytest.Config) -> Iterator[App]:
    """The app that the setting ``tidemill_app`` names, isolated for this test; without that setting a new, empty app.

    It has a memory store and a manual clock; ``tidemill_app.testing()`` runs its jobs.
    """
    if pytestconfig.getini("tidemill_app"):
        yield _configured(pytestconfig)
        return
    from tidemill.app import App
    from tidemill.clock import ManualClock

    with App("memory://", clock=ManualClock()) as app:
        yield app


def _configured(config: pytest.Config) -> App:
    from tidemill.engine.app_lookup import find_app

    return cast("App", find_app(config.getini("tidemill_app")))
