"""System checks of the settings and of the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from tidemill.contrib.django.databases import is_in_memory, store_url
from tidemill.contrib.django.project import alias_of, project_settings
from tidemill.errors import TidemillError
from tidemill.stores.open import open_store


@checks.register("tidemill")
def check_settings(**_: Any) -> list[checks.CheckMessage]:
    """Report unknown names in ``TIDEMILL`` and databases that cannot hold jobs."""
    try:
        given = project_settings()
        alias = alias_of(given)
        if "store" not in given and not (alias in connections and is_in_memory(connections[alias])):
            store_url(alias)
    except ImproperlyConfigured as error:
        return [checks.Error(str(error), id="tidemill.E001")]
    return []


@checks.register(checks.Tags.database)
def check_schema(databases: Sequence[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """Report migrations that ``manage.py migrate`` would apply; ``manage.py check --database`` asks for this."""
    given = project_settings()
    alias = alias_of(given)
    if alias not in (databases or ()) or ("store" not in given and is_in_memory(connections[alias])):
        return []
    store = open_store(str(given.get("store") or store_url(alias)))
    try:
        pending = store.schema().pending
    except TidemillError as error:
        return [checks.Error(str(error), id="tidemill.E002")]
    finally:
        store.close()
    if not pending:
        return []
    return [
        checks.Warning(
            f"the schema of the jobs lacks {len(pending)} migrations",
            hint="run: manage.py migrate",
            id="tidemill.W001",
        )
    ]
