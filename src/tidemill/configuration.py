"""Settings from the environment, from files that it names, and from ``[tool.tidemill]`` of pyproject.toml.

The order is the same everywhere: what the code or the command line gives, ``TIDEMILL_NAME``, ``TIDEMILL_NAME_FILE``, pyproject.toml,
and for the store ``DATABASE_URL``. The first one that has a value wins.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.errors import BadSettings

PREFIX = "TIDEMILL_"
FILE = "_FILE"
PROJECT = "pyproject.toml"
_STORES = ("postgres", "postgresql", "sqlite")


class ConfigValue(NamedTuple):
    """The value of a setting, and where it comes from."""

    value: Any
    source: str


def variable(name: str) -> ConfigValue | None:
    """The value of an environment variable, or the contents of the file that ``NAME_FILE`` names.

    An empty variable counts as not set. Line breaks at the end of a file are dropped.
    """
    if value := os.environ.get(name):
        return ConfigValue(value, name)
    path = os.environ.get(name + FILE)
    if not path:
        return None
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(
            f"{name}{FILE} names {path}, which cannot be read: {error}", setting=name + FILE
        ) from None
    return ConfigValue(text, f"{name}{FILE} ({path})")


def value_of(name: str) -> str | None:
    """The text of a setting of the environment, or None."""
    setting = variable(name)
    return None if setting is None else str(setting.value)


def project_settings() -> tuple[Mapping[str, Any], Path | None]:
    """The table ``[tool.tidemill]`` of the nearest pyproject.toml at or above the working directory, and that file."""
    try:
        here = Path.cwd()
    except OSError:  # the directory was deleted
        return {}, None
    for folder in (here, *here.parents):
        path = folder / PROJECT
        if path.is_file():
            settings: Mapping[str, Any] = _read(path, path.stat().st_mtime_ns)
            return settings, path
    return {}, None


@lru_cache(maxsize=8)
def _read(path: Path, _written: int) -> Mapping[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("tidemill", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {error}", setting="tool.tidemill") from None
    if not isinstance(table, dict):
        raise BadSettings(f"{path}: [tool.tidemill] is not a table", setting="tool.tidemill")
    return table


def project_value(name: str, *tables: str) -> ConfigValue | None:
    """A value of ``[tool.tidemill]``, or of a table inside it. ``-`` and ``_`` in names are the same."""
    table, path = project_settings()
    for part in tables:
        inner = table.get(part, {})
        table = inner if isinstance(inner, Mapping) else {}
    for key, value in table.items():
        if key.replace("-", "_") == name.replace("-", "_") and not isinstance(value, Mapping):
            return ConfigValue(value, f"{path} [{'.'.join(('tool', 'tidemill', *tables))}]")
    return None


def database_url() -> ConfigValue | None:
    """``DATABASE_URL`` if it names a database that can be a store."""
    url = os.environ.get("DATABASE_URL", "")
    if url.partition(":")[0].partition("+")[0].lower() in _STORES:
        return ConfigValue(url, "DATABASE_URL")
    return None


def store_url() -> ConfigValue | None:
    """The store of an app that names none, and of commands without an app."""
    return variable(f"{PREFIX}STORE") or project_value("store") or database_url()


def default_store() -> str:
    """The store of ``App()``: the configured one, else the memory of the process."""
    configured = store_url()
    return "memory://" if configured is None else str(configured.value)
