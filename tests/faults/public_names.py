"""Print the public names of the Tidemill that this program imports, with the parameters of each function, as JSON.

It runs with the code of the first release too, so it uses what both have.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator

import tidemill
from tidemill import App, errors

PARTS = (
    "jobs",
    "archive",
    "definitions",
    "schedules",
    "stats",
    "control",
    "keys",
    "audit",
    "limits",
    "events",
    "registry",
)


def members(prefix: str, holder: object) -> Iterator[tuple[str, list[str]]]:
    """Yield the public members of a class with their parameters."""
    for name, value in inspect.getmembers(holder):
        if not name.startswith("_"):
            yield f"{prefix}.{name}", parameters(value)


def parameters(value: object) -> list[str]:
    """The named parameters of a function; none for anything else."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, parameter in signature.parameters.items() if parameter.kind not in variable]


def public_names() -> dict[str, list[str]]:
    """All public names: the package, its classes, the parts of an app, and the errors."""
    found: dict[str, list[str]] = {}
    for name in tidemill.__all__:
        value = getattr(tidemill, name)
        found[name] = []
        if inspect.isclass(value):
            found |= members(name, value)
    with App("memory://") as app:
        for part in PARTS:
            found |= members(f"app.{part}", type(getattr(app, part)))
    found |= {f"errors.{name}": [] for name, value in vars(errors).items() if inspect.isclass(value)}
    return found


if __name__ == "__main__":
    print(json.dumps(public_names()))
