"""Configuration of the Django application ``tidemill``."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules

from tidemill.stores.open import open_store


class TidemillConfig(AppConfig):  # type: ignore[misc]  # Django has no types
    """Imports the ``tasks`` modules of all applications and keeps the schema of the jobs up to date."""

    name = "tidemill.contrib.django"
    label = "tidemill"
    verbose_name = "Background jobs"

    def ready(self) -> None:
        from tidemill.contrib.django import checks  # noqa: F401  (registers the checks)

        connection_created.connect(_follow_database, dispatch_uid="tidemill.follow")
        post_migrate.connect(_migrate, sender=self, dispatch_uid="tidemill.migrate")
        _discover()


def _discover() -> None:
    """Import every ``tasks`` module; include its task groups and the tasks of ``@task``."""
    from django.apps import apps

    from tidemill.contrib.django.project import PROJECT
    from tidemill.task_group import module_groups

    autodiscover_modules("tasks")
    for config in apps.get_app_configs():
        if (module := _tasks_of(config)) is not None:
            for group in module_groups(module):
                # A process may enqueue before it opens a connection of Django, which else leads to the database.
                group.choose_by(PROJECT.synced)
                PROJECT.app.include(group)
    # The same for tasks that modules declared on the app itself. Checks and the first use report wrong settings.
    with suppress(ImproperlyConfigured):
        PROJECT.synced()


def _tasks_of(config: AppConfig) -> Any:
    return sys.modules.get(f"{config.name}.tasks")


def _follow_database(connection: Any, **_: Any) -> None:
    """Move the jobs to the database that a test runner has created."""
    from tidemill.contrib.django.databases import is_in_memory
    from tidemill.contrib.django.project import PROJECT, alias_of, project_settings

    if connection.alias == NO_DB_ALIAS:
        # A test database is created, copied or dropped, which open connections to it would prevent.
        PROJECT.release()
        return
    given = project_settings()
    if "store" not in given and connection.alias == alias_of(given) and not is_in_memory(connection):
        PROJECT.synced()


def _migrate(using: str = DEFAULT_DB_ALIAS, verbosity: int = 1, stdout: Any = None, **_: Any) -> None:
    """Apply the pending migrations of the schema; ``manage.py migrate`` sends the signal."""
    from tidemill.contrib.django.databases import is_in_memory, store_url
    from tidemill.contrib.django.project import alias_of, project_settings

    given = project_settings()
    if using != alias_of(given) or ("store" not in given and is_in_memory(connections[using])):
        return
    store = open_store(str(given.get("store") or store_url(using)))
    try:
        applied = store.migrate()
    finally:
        store.close()
    if applied and verbosity >= 1:
        (stdout or sys.stdout).write(f"  Tidemill: applied {', '.join(applied)}\n")
