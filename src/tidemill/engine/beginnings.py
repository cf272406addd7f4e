"""What must be known or written before a job begins, waited for until the store answers or the worker ends."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NO_DETAILS, Claim, Details
from tidemill.domain.states import JobState
from tidemill.engine.held import Desk, Held
from tidemill.engine.lanes import PROCESS, kind_of
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared

_log = logging.getLogger("tidemill.engine")
_PAUSE = 1.0
T = TypeVar("T")


class Patience(Protocol):
    """Says how long it is worth waiting."""

    @property
    def closed(self) -> bool: ...

    def rest(self, seconds: float) -> None: ...


def details_of(store: Store, claims: Sequence[Claim], patience: Patience) -> dict[UUID, Details]:
    """What the jobs were asked with, where that is more than a claim holds."""
    detailed = [claim.id for claim in claims if claim.detailed]
    if not detailed:
        return {}
    found = _patiently(lambda: store.get(detailed, tenant=ALL_TENANTS), "what jobs were asked with", patience)
    return {job.id: job.details for job in found or ()}


def held_of(
    claims: Sequence[Claim], details: Mapping[UUID, Details], registry: Registry, desk: Desk, *, alone: bool
) -> dict[int, Held]:
    """The claimed jobs with what is needed to run them, by the numbers of their ids."""
    held: dict[int, Held] = {}
    tasks: dict[str, tuple[Declared, str]] = {}
    for claim in claims:
        if claim.task not in tasks:
            declared = registry.get(claim.task)
            tasks[claim.task] = declared, kind_of(declared)
        declared, kind = tasks[claim.task]
        if claim.crashes and alone:
            kind = PROCESS  # a suspect runs alone: if it is the one that kills, it kills nobody else
        asked_with = details.get(claim.id, NO_DETAILS) if claim.detailed else NO_DETAILS
        held[claim.id.int] = Held(claim, declared, asked_with, desk, kind)
    return held


def mark_running(store: Store, jobs: Sequence[Held], patience: Patience) -> list[Held]:
    """Write that these jobs run, before they do; those that are not ours any more.

    Done for suspects of a crash: one of them that is only ``claimed`` when its worker dies is then known to be innocent.
    """
    waiting = [held for held in jobs if held.claim.state is JobState.CLAIMED]
    if not waiting:
        return []
    lost = _patiently(
        lambda: store.start([held.claim for held in waiting]), "that suspects are begun", patience
    )
    if lost is None:
        return waiting
    for held in waiting:
        held.claim = held.claim._replace(state=JobState.RUNNING)
    return [held for held in waiting if held.claim.id in lost]


def _patiently(ask: Callable[[], T], what: str, patience: Patience) -> T | None:
    """The store's answer; None once nobody waits for it any more."""
    while not patience.closed:
        try:
            return ask()
        except StoreError as error:
            _log.debug("%s must wait until the store answers: %s", what, error)
            patience.rest(_PAUSE)
    return None
