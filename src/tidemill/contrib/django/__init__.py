"""Django integration: tasks backend, transactions, migrations, commands, admin and dashboard.

``INSTALLED_APPS`` loads this package before Django is ready, so it imports nothing of Django itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.contrib.django.backend import Backend

    app: App

__all__ = ["Backend", "app"]


if not TYPE_CHECKING:  # type checkers still report every unknown name

    def __getattr__(name: str) -> Any:
        """Return the app of the project, or the tasks backend; the app is created on first use."""
        if name == "app":
            return importlib.import_module(f"{__name__}.project").loaded_app()
        if name == "Backend":
            return importlib.import_module(f"{__name__}.backend").Backend
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
