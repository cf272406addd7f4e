"""The duties, one file each: promote, fire, reclaim, expire, sweep, and others.

Each is safe when two processes run it at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from random import Random

from tidemill.clock import Clock
from tidemill.domain.cluster import SPREAD, Coordination
from tidemill.domain.retention import ArchivePolicy
from tidemill.engine.duties.blobs import SweepBlobs
from tidemill.engine.duties.cascade import CascadeDuty
from tidemill.engine.duties.expire import CancelExpired, Expire
from tidemill.engine.duties.fire import FireDuty, TaskDataOf, no_task_data
from tidemill.engine.duties.fire_here import FireHere
from tidemill.engine.duties.fold import FoldEnds
from tidemill.engine.duties.promote import Promote, Repeat
from tidemill.engine.duties.react import ReactDuty
from tidemill.engine.duties.receivers import WakeReceivers
from tidemill.engine.duties.reclaim import Reclaim
from tidemill.engine.duties.recount import RecountJoins
from tidemill.engine.duties.removal import DropEnded
from tidemill.engine.duties.schedule_locks import ScheduleLocks, schedule_locks
from tidemill.engine.duties.settle import PolicyOf
from tidemill.engine.duties.sweep import Sweep
from tidemill.engine.duties.tick import TickDuty
from tidemill.engine.duties.wake import Wake
from tidemill.engine.duty import Done, Duty
from tidemill.engine.fire_hooks import NO_FIRE_HOOKS, FireHooks, LocalFireHooks
from tidemill.stores.base import Store

__all__ = [
    "CancelExpired",
    "CascadeDuty",
    "DropEnded",
    "Expire",
    "FireDuty",
    "FireHere",
    "FoldEnds",
    "LocalFireHooks",
    "PolicyOf",
    "Promote",
    "ReactDuty",
    "Reclaim",
    "RecountJoins",
    "Sweep",
    "SweepBlobs",
    "TaskDataOf",
    "TickDuty",
    "Wake",
    "WakeReceivers",
    "batch_of",
    "duties_here",
    "schedule_locks",
    "usual_duties",
]

_BATCH, _SMALL_BATCH = 500, 100

REST = timedelta(seconds=30)
"""How often a process closes connections that it does not use."""


def batch_of(coordination: Coordination) -> int:
    """The maximum batch of one run of a duty; smaller if workers share the duties."""
    return _SMALL_BATCH if coordination in SPREAD else _BATCH


def usual_duties(
    store: Store,
    clock: Clock,
    policy_of: PolicyOf,
    random: Random,
    *,
    batch: int = _BATCH,
    reclaim: Reclaim | None = None,
    retention: Sequence[ArchivePolicy] = (),
    task_data_of: TaskDataOf = no_task_data,
    fire_hooks: FireHooks = NO_FIRE_HOOKS,
    led: bool = False,
    locks: ScheduleLocks | None = None,
) -> list[Duty]:
    """The duties that every worker offers to run.

    ``reclaim`` is an instance that other code calls as well. ``retention`` is for stores without an archive.
    ``task_data_of`` returns the options of tasks whose schedules are fired. ``fire_hooks`` has the hooks and events for
    their jobs. ``locks`` are those of schedules while they fire. ``led`` means that one process at a time runs them, so that it can announce the size of the fleet.
    """
    waiting = Wake(store, clock)
    tick = TickDuty(clock, workers_of=store.workers if led else None)
    duties = [
        Promote(store, batch=batch, tick=tick, random=random).duty(),
        (reclaim or Reclaim(store, clock, policy_of, random, batch=batch)).duty(),
        FireDuty(
            store, clock, task_data_of, fire_hooks, batch=batch, on_waiting=waiting.knows, locks=locks
        ).duty(),
        ReactDuty(store, clock, task_data_of, fire_hooks, on_waiting=waiting.knows).duty(),
        waiting.duty(),
        WakeReceivers(store, clock, batch=batch).duty(),
        Expire(store, clock, policy_of, random, batch=batch).duty(),
        CancelExpired(store, batch=batch).duty(),
        CascadeDuty(store, clock).duty(),
        RecountJoins(store).duty(),
        Sweep(store).duty(),
        SweepBlobs(store).duty(),
        FoldEnds(store, clock).duty(),
    ]
    duties += [Repeat(store, clock, tick).duty()] if led else []
    return duties + ([DropEnded(store, retention).duty()] if retention else [])


def duties_here(
    store: Store,
    clock: Clock,
    node: str,
    task_data_of: TaskDataOf = no_task_data,
    fire_hooks: FireHooks = NO_FIRE_HOOKS,
) -> list[Duty]:
    """The duties that every node runs for itself, independent of the leader."""
    return [FireHere(store, clock, node, task_data_of, fire_hooks).duty(), rest_duty(store)]


def rest_duty(store: Store) -> Duty:
    """A duty that closes idle connections of this process."""

    def rest() -> Done:
        store.rest()
        return Done()

    return Duty("rest", REST, rest)
