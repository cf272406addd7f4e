"""Django's task standard, from Django or from its backport."""

import importlib

try:
    tasks = importlib.import_module("django.tasks")
except ModuleNotFoundError:
    tasks = importlib.import_module("django_tasks")

PACKAGE = tasks.__name__
task, task_backends, TaskResultStatus = tasks.task, tasks.task_backends, tasks.TaskResultStatus
signals = importlib.import_module(f"{PACKAGE}.signals")
exceptions = importlib.import_module(f"{PACKAGE}.exceptions")
InvalidTask = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError
