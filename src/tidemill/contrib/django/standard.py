"""Names of Django's task standard: from Django 6.0 on, or from its backport ``django-tasks``."""

from __future__ import annotations

import importlib
from typing import Any

from django.core.exceptions import ImproperlyConfigured


def _package() -> str:
    for name in ("django.tasks", "django_tasks"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                raise
        else:
            return name
    raise ImproperlyConfigured(
        "the tasks backend needs Django 6.0, or on Django 5.2: pip install django-tasks"
    )


PACKAGE = _package()
_base: Any = importlib.import_module(f"{PACKAGE}.base")
_exceptions: Any = importlib.import_module(f"{PACKAGE}.exceptions")
signals: Any = importlib.import_module(f"{PACKAGE}.signals")

BaseTaskBackend: Any = importlib.import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
Task: Any = _base.Task
TaskContext: Any = _base.TaskContext
TaskError: Any = _base.TaskError
TaskResult: Any = _base.TaskResult
TaskResultStatus: Any = _base.TaskResultStatus
TaskResultDoesNotExist: Any = _exceptions.TaskResultDoesNotExist
#: The backport uses other names for this exception.
InvalidTask: Any = getattr(_exceptions, "InvalidTask", None) or _exceptions.InvalidTaskError
normalize_json: Any = _base.normalize_json
