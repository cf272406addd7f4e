"""Switches that disable one protection, so that a run can show its necessity.

Each switch replaces one function or removes one condition from the queries, in this process only. A switch that finds
nothing to remove raises, because a run that passes without it would prove nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

from tidemill.stores.sql.named_queries import NamedQuery, load

WITHOUT = "FAULTS_WITHOUT"
"""Environment variable: the protection that this process runs without."""


def _change(module: str, path: str, instead: Any) -> None:
    """Replace an existing attribute, such as ``Class.method``."""
    owner: Any = import_module(f"tidemill.{module}")
    *holders, name = path.split(".")
    for holder in holders:
        owner = getattr(owner, holder)
    if not hasattr(owner, name):
        raise AssertionError(f"tidemill.{module} has no {path}")
    setattr(owner, name, instead)


def _cut(pattern: str, instead: str) -> None:
    """Replace a pattern in every query of both dialects."""
    for dialect in ("postgres", "sqlite"):
        queries, removed = cast("dict[str, NamedQuery]", load(dialect)), 0
        for name, query in list(queries.items()):
            body, count = re.subn(pattern, instead, query.body)
            queries[name] = replace(query, body=body)
            removed += count
        if not removed:
            raise AssertionError(f"{dialect}: no query contains {pattern}")


def _set_endless(fence: object, name: str, value: object) -> None:
    """Set an attribute of a fence whose lease never ends."""
    object.__setattr__(fence, name, float("inf") if name == "until" else value)


def _lease_fence() -> None:
    """Runners continue without a confirmed heartbeat, and the store lets a worker claim without a live lease."""
    _change("engine.runner.watchdog", "Fence.holds", True)
    _change("engine.runner.watchdog", "Fence.look", lambda _self: None)
    _change("engine.runner.watchdog", "Fence.__setattr__", _set_endless)
    _cut(r"w\.state <> 'stopped' and w\.expires_at > (coalesce\(:now::timestamptz, now\(\)\)|:now)", "true")


def _clock_proof() -> None:
    """An observer considers a worker gone as soon as its lease has ended by the store's clock."""
    _change("domain.liveness", "Observer._wait", lambda _self, _lease, left, still: left.total_seconds())


def _release_order() -> None:
    """Each deployment considers itself the newest."""
    releases = import_module("tidemill.domain.releases")
    newest = releases.ReleaseDecision(releases.ReleaseVerdict.WRITE)
    _change("client.schedules.declarations", "judge", lambda _mine, _stored, _now: newest)


def _worker_fence() -> None:
    """A write needs only the job's id and token, and a worker does not stop jobs that it no longer holds."""
    _cut(
        r"( and (?:r\.|h\.)?token = (?:x\.|:)?\w+) and (?:r\.|h\.)?worker (?:=|is not distinct from|is) (?:x\.|:)worker",
        r"\1",
    )
    _change("engine.exchange.recovery", "Recovery.reconnected", lambda _self: None)


def _sick_check() -> None:
    """The supervisor examines no runner."""
    _change("engine.supervisor.runner_checks", "RunnerChecks.look", lambda _self, _crew: [])


def _file_latch() -> None:
    """A session does not check whether its file is still at the path."""
    _change("stores.sql.sqlite.file_checks", "FileIdentity.check", lambda _self, **_: None)


def _serves() -> None:
    """Code refuses every schema that is newer than itself."""
    migrations = import_module("tidemill.stores.sql.migrations")
    pending = migrations.pending

    def strictly(released: Any, installed: Any, where: str) -> Any:
        steps = installed.steps
        if len(steps) > len(released):
            raise migrations.too_new(where, len(steps), len(released), installed.serves)
        return pending(released, installed, where)

    _change("stores.sql.migrations", "pending", strictly)


SWITCHES: dict[str, Callable[[], None]] = {
    "lease-fence": _lease_fence,
    "clock-proof": _clock_proof,
    "release-order": _release_order,
    "worker-fence": _worker_fence,
    "sick-check": _sick_check,
    "file-latch": _file_latch,
    "serves": _serves,
}
"""Functions that disable one protection in this process, by name."""


def switch_off(name: str | None = None) -> None:
    """Disable the protection that the environment names."""
    chosen = os.environ.get(WITHOUT, "") if name is None else name
    if chosen:
        SWITCHES[chosen]()
