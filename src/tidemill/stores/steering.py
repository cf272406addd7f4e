"""The part of the store contract by which operators steer the workers: settings and pauses. What they mean, the engine knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from tidemill.domain.ledger import Pause, PauseKind, Setting
from tidemill.domain.limits import Rule


class Orders(NamedTuple):
    """All that workers follow, as of one moment."""

    pauses: list[Pause]
    settings: list[Setting]
    rules: list[Rule]


class Settings(ABC):
    """Worker configuration and pauses."""

    @abstractmethod
    def orders(self) -> Orders:
        """The pauses, the settings and the rules of limits at one look, in any order: every worker asks for them again and again."""

    @abstractmethod
    def settings(self) -> list[Setting]:
        """All settings by key."""

    @abstractmethod
    def put_settings(self, settings: Sequence[Setting], *, now: datetime | None = None) -> None:
        """Write settings, over what was there; a description of None keeps the old one."""

    @abstractmethod
    def drop_settings(self, keys: Collection[str]) -> frozenset[str]:
        """Remove settings; the keys that were there."""

    @abstractmethod
    def pauses(self) -> list[Pause]:
        """All pauses by kind and name."""

    @abstractmethod
    def pause(self, pauses: Sequence[Pause], *, now: datetime | None = None) -> list[Pause]:
        """Pause; the new ones. What is paused already keeps its first reason, person and time."""

    @abstractmethod
    def resume(self, targets: Collection[tuple[PauseKind, str]]) -> list[Pause]:
        """End pauses; those that stood."""
