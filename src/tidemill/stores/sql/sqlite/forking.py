"""Forks: SQLite's connections and locks do not survive one, so every open store lets go of its file for that moment.

The parent opens it again with its next verb, and so does the child. It must not know what a store does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """Something that must not be in use while the process is doubled."""

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


_watched: WeakSet[Forkable] = WeakSet()


def watch(thing: Forkable) -> None:
    """Tell this one of every fork for as long as it lives."""
    _watched.add(thing)


def _each(act: Callable[[Forkable], None]) -> Callable[[], None]:
    def act_on_all() -> None:
        for thing in list(_watched):
            act(thing)

    return act_on_all


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(lambda thing: thing.before_fork()),
        after_in_parent=_each(lambda thing: thing.after_fork_in_parent()),
        after_in_child=_each(lambda thing: thing.after_fork_in_child()),
    )
