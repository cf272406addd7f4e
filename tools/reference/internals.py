"""The private names that the reference pages read, in one place, so that a renamed module changes one file."""

from __future__ import annotations

from tidemill.app_settings import AppKeywords
from tidemill.cli import commands
from tidemill.client.control import KNOWN_SETTINGS
from tidemill.client.enqueue.options import CallKeywords
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.rest.api import all_routes
from tidemill.tasks.options import TaskOptions
from tidemill.web.problems import CODES, STATUSES

__all__ = [
    "CODES",
    "KNOWN_SETTINGS",
    "STATUSES",
    "AppKeywords",
    "CallKeywords",
    "TaskOptions",
    "WorkerSettings",
    "all_routes",
    "commands",
]
