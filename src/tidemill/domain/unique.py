"""Unique jobs: the key of equal jobs, and how long a job holds it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from tidemill.domain.bounds import check_span, span_words
from tidemill.domain.durations import Duration, set_durations
from tidemill.domain.job import UniqueHold
from tidemill.errors import BadSettings

OnConflict = Literal["return", "replace", "extend", "raise"]
OnFailed = Literal["return", "retry"]
_ON_CONFLICT = ("return", "replace", "extend", "raise")


@dataclass(frozen=True, slots=True)
class Unique:
    """At most one job per key. ``by`` names the arguments that form the key; empty means all of them.

    A job holds its key while it is in one of ``states`` ("pending": until a worker claims it; "live": until it ends), and for
    ``within`` after it was enqueued, whichever is longer. With ``failed="retry"`` a call that finds a holder without a result
    (it failed, or was cancelled) runs that job again, so that the window caches results only.
    """

    by: tuple[str, ...] = ()
    within: timedelta | None = None
    states: Literal["pending", "live"] = "live"
    on_conflict: OnConflict = "return"
    failed: OnFailed = "return"

    if TYPE_CHECKING:

        def __init__(
            self,
            by: tuple[str, ...] = (),
            within: Duration | None = None,
            states: Literal["pending", "live"] = "live",
            on_conflict: OnConflict = "return",
            failed: OnFailed = "return",
        ) -> None: ...

    def __post_init__(self) -> None:
        set_durations(self, "Unique", within=self.within)
        by: object = self.by
        if isinstance(by, str):
            raise BadSettings(f"Unique: by is the text {by!r}; give a tuple of names: by=({by!r},)")
        if self.within is not None and self.within <= timedelta(0):
            raise BadSettings("Unique: within must be longer than zero", within=self.within)
        if self.within is not None:
            check_span("Unique: within", self.within)
        if self.states not in ("pending", "live"):
            raise BadSettings(
                f"Unique: states is {self.states!r}; choose 'pending' or 'live'", states=self.states
            )
        if self.on_conflict not in _ON_CONFLICT:
            raise BadSettings(
                f"Unique: on_conflict is {self.on_conflict!r}; choose one of {', '.join(_ON_CONFLICT)}"
            )

        if self.failed not in ("return", "retry"):
            raise BadSettings(f"Unique: failed is {self.failed!r}; choose 'return' or 'retry'")
        if self.failed == "retry" and self.on_conflict != "return":
            raise BadSettings("Unique: failed='retry' needs on_conflict='return'")

    def words(self) -> str:
        """A short description of the rule.

        >>> Unique(by=("user",), within=timedelta(minutes=5), on_conflict="raise").words()
        'by user, until the job ends and for 5 minutes, on conflict: raise'
        """
        by = ", ".join(self.by) or "all arguments"
        until = "until a worker claims the job" if self.states == "pending" else "until the job ends"
        within = "" if self.within is None else f" and for {span_words(self.within)}"
        failed = "" if self.failed == "return" else ", failed: retry"
        return f"by {by}, {until}{within}, on conflict: {self.on_conflict}{failed}"

    def hold(self, task: str, args: Mapping[str, object]) -> UniqueHold:
        """The key for these arguments.

        >>> rule = Unique(by=("user",))
        >>> rule.hold("mail", {"user": 1, "at": 2}) == rule.hold("mail", {"user": 1, "at": 3})
        True
        """
        missing = [name for name in self.by if name not in args]
        if missing:
            raise BadSettings(
                f"Unique: task {task} has no argument {missing[0]!r}", task=task, missing=missing
            )
        chosen = {name: args[name] for name in self.by} if self.by else dict(args)
        return UniqueHold(
            unique_key(task, chosen), until_claimed=self.states == "pending", window=self.within
        )


def unique_key(task: str, chosen: Mapping[str, object]) -> str:
    """A short stable key: the task's name and a digest of the arguments."""
    text = json.dumps(chosen, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{task}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"
