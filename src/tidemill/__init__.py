"""Tidemill: background jobs for Python that are simple to start, fast, and cannot be lost.

``__all__`` lists what users may import from here. ``tidemill.errors``, ``tidemill.testing``, ``tidemill.rest``,
``tidemill.dashboard`` and the modules of ``tidemill.contrib`` are public as well. Every other module is private and may change in any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.app_leases import AppLease
    from tidemill.client.access import acting
    from tidemill.client.enqueue.bound_task import BoundTask, Recipe
    from tidemill.client.flows.batches import Batch, BatchInfo, BatchRun
    from tidemill.client.flows.builder import Flow, MapNode, Node
    from tidemill.client.flows.node_jobs import each
    from tidemill.client.flows.run import FlowNode, FlowRun
    from tidemill.client.jobs.handle import Job
    from tidemill.clock import ManualClock
    from tidemill.delivery.intake import IntakeMessage
    from tidemill.domain.access import Identity, Role
    from tidemill.domain.alerts import Thresholds
    from tidemill.domain.breaker import Breaker
    from tidemill.domain.calendar import BusinessCalendar, Exclude
    from tidemill.domain.durations import Duration
    from tidemill.domain.job import Execution
    from tidemill.domain.notifications import NotificationRule
    from tidemill.domain.permissions import Grant
    from tidemill.domain.retention import ArchivePolicy
    from tidemill.domain.retention_settings import Retention
    from tidemill.domain.retry import Exponential, Fixed, Immediate, Linear, NoRetry
    from tidemill.domain.states import JobState
    from tidemill.domain.streams import StreamItem
    from tidemill.domain.unique import Unique
    from tidemill.engine.context import Context, current
    from tidemill.errors import Cancel, PermanentError, Retry, Review, Snooze
    from tidemill.holidays import country_calendar, country_holidays, exchange_holidays
    from tidemill.schedule_triggers import (
        After,
        All,
        Cron,
        Daily,
        Every,
        Manual,
        Monthly,
        MonthlyBusinessDay,
        On,
        Once,
        Weekly,
    )
    from tidemill.shards.settings import Shard
    from tidemill.stores.base import Store
    from tidemill.stores.open import open_store
    from tidemill.task_group import TaskGroup, task
    from tidemill.tasks.confinement import Container, Process, Sandbox
    from tidemill.tasks.events import Event
    from tidemill.tasks.item_task import SKIP, Counts, ItemTask
    from tidemill.tasks.limits import Limit, Rate
    from tidemill.tasks.providers import PROVIDED, Provide
    from tidemill.tasks.secret_values import Secret
    from tidemill.tasks.steps import RESULT, Step, undo
    from tidemill.tasks.task import Task

__version__ = "0.1.0"

__all__ = [
    "PROVIDED",
    "RESULT",
    "SKIP",
    "After",
    "All",
    "App",
    "AppLease",
    "ArchivePolicy",
    "Batch",
    "BatchInfo",
    "BatchRun",
    "BoundTask",
    "Breaker",
    "BusinessCalendar",
    "Cancel",
    "Container",
    "Context",
    "Counts",
    "Cron",
    "Daily",
    "Duration",
    "Event",
    "Every",
    "Exclude",
    "Execution",
    "Exponential",
    "Fixed",
    "Flow",
    "FlowNode",
    "FlowRun",
    "Grant",
    "Identity",
    "Immediate",
    "IntakeMessage",
    "ItemTask",
    "Job",
    "JobState",
    "Limit",
    "Linear",
    "Manual",
    "ManualClock",
    "MapNode",
    "Monthly",
    "MonthlyBusinessDay",
    "NoRetry",
    "Node",
    "NotificationRule",
    "On",
    "Once",
    "PermanentError",
    "Process",
    "Provide",
    "Rate",
    "Recipe",
    "Retention",
    "Retry",
    "Review",
    "Role",
    "Sandbox",
    "Secret",
    "Shard",
    "Snooze",
    "Step",
    "Store",
    "StreamItem",
    "Task",
    "TaskGroup",
    "Thresholds",
    "Unique",
    "Weekly",
    "acting",
    "country_calendar",
    "country_holidays",
    "current",
    "each",
    "exchange_holidays",
    "open_store",
    "task",
    "undo",
]

_MODULES = {
    "tidemill.app": "App",
    "tidemill.app_leases": "AppLease",
    "tidemill.client.access": "acting",
    "tidemill.client.enqueue.bound_task": "BoundTask Recipe",
    "tidemill.client.flows.batches": "Batch BatchInfo BatchRun",
    "tidemill.client.flows.builder": "Flow MapNode Node",
    "tidemill.client.flows.node_jobs": "each",
    "tidemill.client.flows.run": "FlowNode FlowRun",
    "tidemill.client.jobs.handle": "Job",
    "tidemill.clock": "ManualClock",
    "tidemill.delivery.intake": "IntakeMessage",
    "tidemill.domain.access": "Identity Role",
    "tidemill.domain.alerts": "Thresholds",
    "tidemill.domain.breaker": "Breaker",
    "tidemill.domain.calendar": "BusinessCalendar Exclude",
    "tidemill.domain.durations": "Duration",
    "tidemill.domain.job": "Execution",
    "tidemill.domain.notifications": "NotificationRule",
    "tidemill.domain.permissions": "Grant",
    "tidemill.domain.retention": "ArchivePolicy",
    "tidemill.domain.retention_settings": "Retention",
    "tidemill.domain.retry": "Exponential Fixed Immediate Linear NoRetry",
    "tidemill.domain.states": "JobState",
    "tidemill.domain.streams": "StreamItem",
    "tidemill.domain.unique": "Unique",
    "tidemill.engine.context": "Context current",
    "tidemill.errors": "Cancel PermanentError Retry Review Snooze",
    "tidemill.holidays": "country_calendar country_holidays exchange_holidays",
    "tidemill.schedule_triggers": "After All Cron Daily Every Manual Monthly MonthlyBusinessDay On Once Weekly",
    "tidemill.shards.settings": "Shard",
    "tidemill.stores.base": "Store",
    "tidemill.stores.open": "open_store",
    "tidemill.task_group": "TaskGroup task",
    "tidemill.tasks.confinement": "Container Process Sandbox",
    "tidemill.tasks.events": "Event",
    "tidemill.tasks.item_task": "SKIP Counts ItemTask",
    "tidemill.tasks.limits": "Limit Rate",
    "tidemill.tasks.providers": "PROVIDED Provide",
    "tidemill.tasks.secret_values": "Secret",
    "tidemill.tasks.steps": "RESULT Step undo",
    "tidemill.tasks.task": "Task",
}
"""The public names of each module. A module is imported when one of its names is used first, so that a program loads only what
it needs: a supervisor has no use for the code that declares tasks, a program that declares them none for the engine."""

_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers still report every unknown name

    def __getattr__(name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
