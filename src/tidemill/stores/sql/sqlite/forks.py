"""Fork handling: every open store closes its file before a fork.

SQLite's connections and locks do not survive a fork. Parent and child open the file again with their next verb.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object that must not be in use during a fork."""

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


_watched: WeakSet[Forkable] = WeakSet()


def watch(thing: Forkable) -> None:
    """Notify this object of every fork during its lifetime."""
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
