"""The part of the store contract for settings and pauses of workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from tidemill.domain.limits import Rule
from tidemill.domain.records import Pause, PauseKind, Setting
from tidemill.stores.subscription_cache import SubscriptionCache


class RuntimeState(NamedTuple):
    """Pauses, settings and limit rules, as of one instant."""

    pauses: list[Pause]
    settings: list[Setting]
    rules: list[Rule]


class SettingsStore(SubscriptionCache, ABC):
    """Worker configuration and pauses."""

    @abstractmethod
    def orders(self) -> RuntimeState:
        """The pauses, the settings and the limit rules in one query, in any order; every worker polls them."""

    @abstractmethod
    def settings(self) -> list[Setting]:
        """All settings by key."""

    @abstractmethod
    def put_settings(self, settings: Sequence[Setting], *, now: datetime | None = None) -> None:
        """Write settings; a description of None keeps the old one."""

    @abstractmethod
    def drop_settings(self, keys: Collection[str]) -> frozenset[str]:
        """Delete settings. Returns the keys that existed."""

    @abstractmethod
    def pauses(self) -> list[Pause]:
        """All pauses by kind and name."""

    @abstractmethod
    def pause(self, pauses: Sequence[Pause], *, now: datetime | None = None) -> list[Pause]:
        """Add pauses. Returns the new ones; an existing pause keeps its first reason, person and time."""

    @abstractmethod
    def resume(self, targets: Collection[tuple[PauseKind, str]]) -> list[Pause]:
        """Delete pauses. Returns those that existed."""
