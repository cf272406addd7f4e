"""Defaults of command-line options from the environment and pyproject.toml.

The option ``--threads`` of ``worker`` is ``TIDEMILL_WORKER_THREADS``, ``TIDEMILL_WORKER_THREADS_FILE``, or ``threads`` in the table
``[tool.tidemill.worker]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from tidemill.configuration import PREFIX, ConfigValue, project_settings, project_value, store_url, variable
from tidemill.errors import BadSettings

SHARED = ("app", "store", "store-name")
"""Options that every command takes from one variable and from ``[tool.tidemill]`` itself."""


def option_name(param: click.Parameter) -> str:
    """The name of an option as users write it, without dashes before it: ``health-port``."""
    return max((name.lstrip("-") for name in param.opts), key=len)


def variable_of(path: tuple[str, ...], option: str) -> str:
    """The environment variable of an option."""
    words = (option,) if option in SHARED else (*path, option)
    return PREFIX + "_".join(words).replace("-", "_").upper()


def found_value(path: tuple[str, ...], param: click.Parameter) -> ConfigValue | None:
    """The value of an option that the command line does not give."""
    option = option_name(param)
    setting = variable(variable_of(path, option)) or project_value(option, *path)
    if setting is None and option in SHARED:
        setting = store_url() if option == "store" else project_value(option)
    if setting is not None and param.multiple and isinstance(setting.value, str):
        return setting._replace(value=[part for part in setting.value.split(",") if part])
    return setting


class ConfigMap(Mapping[str, Any]):
    """Click's ``default_map`` of one command, which looks its values up when they are needed."""

    def __init__(self, command: click.Command, path: tuple[str, ...] = ()) -> None:
        self._command, self._path = command, path
        if path and not isinstance(command, click.Group):
            check_table(command, path)

    def __getitem__(self, name: str) -> Any:
        if isinstance(self._command, click.Group):
            inner = self._command.get_command(click.Context(self._command), name)
            if inner is None:
                raise KeyError(name)
            return ConfigMap(inner, (*self._path, name))
        for param in self._command.params:
            if param.name == name and isinstance(param, click.Option):
                setting = found_value(self._path, param)
                if setting is not None:
                    return setting.value
        raise KeyError(name)

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1  # click ignores an empty map


def check_table(command: click.Command, path: tuple[str, ...]) -> None:
    """Refuse keys of the command's table that are not its options."""
    table, file = project_settings()
    for part in path:
        inner = table.get(part, {})
        table = inner if isinstance(inner, Mapping) else {}
    options = [option_name(param) for param in command.params if isinstance(param, click.Option)]
    for key in table:
        if key.replace("_", "-") not in options:
            raise BadSettings(
                f"{file}: [tool.tidemill.{'.'.join(path)}] has an unknown option {key!r}; "
                f"expected one of {', '.join(sorted(options))}",
                option=key,
            )
