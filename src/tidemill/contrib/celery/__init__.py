"""Celery's API on Tidemill: change ``from celery import`` to ``from tidemill.contrib.celery import``."""

from __future__ import annotations

from typing import Any

from tidemill.contrib.celery import exceptions, schedules, signals, states
from tidemill.contrib.celery.application import Celery, default_app, shared_task
from tidemill.contrib.celery.canvas import (
    CanvasPart,
    CeleryChain,
    CeleryChord,
    CeleryChunks,
    CeleryGroup,
    CelerySignature,
)
from tidemill.contrib.celery.group_result import CeleryGroupResult
from tidemill.contrib.celery.log import get_task_logger
from tidemill.contrib.celery.request import running
from tidemill.contrib.celery.result import AsyncResult, EagerResult
from tidemill.contrib.celery.schedules import crontab, schedule
from tidemill.contrib.celery.task import CeleryTask
from tidemill.errors import UsageError

Task, Signature, GroupResult = CeleryTask, CelerySignature, CeleryGroupResult
chain, group, chord, chunks = CeleryChain, CeleryGroup, CeleryChord, CeleryChunks

__all__ = [
    "AsyncResult",
    "Celery",
    "EagerResult",
    "GroupResult",
    "Signature",
    "Task",
    "chain",
    "chord",
    "chunks",
    "crontab",
    "current_app",
    "current_task",
    "exceptions",
    "get_task_logger",
    "group",
    "schedule",
    "schedules",
    "shared_task",
    "signals",
    "signature",
    "states",
    "subtask",
]


def signature(name: str | CanvasPart, *args: Any, **options: Any) -> Any:
    """Return a signature of a call by the name of its task."""
    return name if isinstance(name, CanvasPart) else default_app().signature(name, *args, **options)


subtask = signature


class _CurrentApp:
    """Stands for the app that was created last."""

    def __getattr__(self, name: str) -> Any:
        return getattr(default_app(), name)


class _CurrentTask:
    """Stands for the task that is running here."""

    def __getattr__(self, name: str) -> Any:
        current = running.get()
        if current is None:
            raise UsageError("no task is running here")
        return getattr(current[0], name)

    def __bool__(self) -> bool:
        return running.get() is not None


current_app: Any = _CurrentApp()
current_task: Any = _CurrentTask()
