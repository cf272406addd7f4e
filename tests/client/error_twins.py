"""Answers of the asynchronous methods of ``app.errors``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tidemill import PermanentError


def _bill(to: str) -> None:
    raise PermanentError(f"no letter to {to}")


def _with_error(name: str, *, about: bool = True) -> Callable[[Any], Awaitable[Any]]:
    """Return a story that fails a job and calls a method, about the group of that failure."""

    async def story(house: Any) -> Any:
        house.app.task(name="bill")(_bill).enqueue(to="ada")
        await house.app.testing().adrain()
        (group,) = house.app.errors.list()
        return await getattr(house.app.errors, name)(*((group.fingerprint,) if about else ()))

    return story


def error_stories() -> dict[str, tuple[Callable[[Any], Awaitable[Any]], Any]]:
    """The stories by the name of the method, each with a check of the result."""
    stories: dict[str, tuple[Callable[[Any], Awaitable[Any]], Any]] = {
        "alist": (_with_error("alist", about=False), lambda groups: groups[0].jobs == 1),
        "adeploys": (_with_error("adeploys", about=False), []),
        "aget": (_with_error("aget"), lambda group: group.jobs == 1),
        "aparts": (_with_error("aparts"), lambda parts: parts[0].message == "no letter to ada"),
        "aretry": (_with_error("aretry"), lambda acted: acted.done == 1),
    }
    for name, status in (
        ("amute", "muted"), ("aunmute", "open"), ("aresolve", "resolved"), ("aunresolve", "open"),
    ):  # fmt: skip
        stories[name] = (_with_error(name), lambda group, status=status: group.status == status)
    return {f"ErrorGroups.{name}": story for name, story in stories.items()}
